"""Records what transformers.get_scheduler makes of a learning rate of 0.05.

Prints JSON: of each case its arguments and the rate of each step, from before the first
on. python3 trainer_schedules.py > trainer_schedules.json
"""
import json
import math
import warnings

import torch
import transformers

warnings.simplefilter("ignore")
LR = 0.05
STEPS = 20
CASES = [
    ("linear", 0, {}),
    ("linear", 5, {}),
    ("linear", 0.13, {}),
    ("constant", 3, {}),
    ("constant_with_warmup", 3, {}),
    ("cosine", 4, {}),
    ("cosine", 0, {"num_cycles": 1.25}),
    ("cosine_with_restarts", 2, {"num_cycles": 3}),
    ("polynomial", 3, {"lr_end": 0.001, "power": 2.0}),
    ("polynomial", 0.1, {}),
    ("inverse_sqrt", 4, {}),
    ("inverse_sqrt", 0, {}),
    ("inverse_sqrt", 2, {"timescale": 9}),
    ("cosine_with_min_lr", 3, {"min_lr": 0.004}),
    ("cosine_with_min_lr", 3, {"min_lr_rate": 0.1, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", 4, {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", 4, {"min_lr": 0.002, "warmup_lr_rate": 0.2}),
    ("warmup_stable_decay", 3, {"num_decay_steps": 6}),
    ("warmup_stable_decay", 5, {"num_decay_steps": 6, "num_stable_steps": 4, "warmup_type": "cosine", "decay_type": "1-sqrt", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 5, {"num_decay_steps": 8, "warmup_type": "1-sqrt", "decay_type": "linear"}),
]

out = {"transformers": transformers.__version__, "lr": LR, "steps": STEPS, "cases": []}
for name, warmup, kwargs in CASES:
    p = torch.nn.Parameter(torch.zeros(2))
    o = torch.optim.AdamW([p], lr=LR)
    s = transformers.get_scheduler(
        name, o, num_warmup_steps=int(warmup) if warmup >= 1 else math.ceil(STEPS * warmup), num_training_steps=STEPS, scheduler_specific_kwargs=kwargs
    )
    rates = []
    for _ in range(STEPS + 3):
        rates.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    out["cases"].append({"type": name, "warmup": warmup, "kwargs": kwargs, "rates": rates})
print(json.dumps(out, separators=(",", ":")))
