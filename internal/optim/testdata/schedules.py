"""Records what the schedulers of torch.optim.lr_scheduler make of an optimizer's rates.

Prints JSON: of each case the scheduler as a spec writes it, and the rate and
momentum of each step, from before the first on. python3 schedules.py > schedules.json
"""
import json
import math
import warnings

import torch
from torch.optim import lr_scheduler

warnings.simplefilter("ignore")
STEPS = 24
CASES = [
    {"StepLR": {"step_size": 5}},
    {"StepLR": {"step_size": 3, "gamma": 0.5}},
    {"MultiStepLR": {"milestones": [2, 7, 7, 15], "gamma": 0.3}},
    {"ConstantLR": {}},
    {"ConstantLR": {"factor": 0.25, "total_iters": 9}},
    {"LinearLR": {}},
    {"LinearLR": {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 11}},
    {"ExponentialLR": {"gamma": 0.9}},
    {"PolynomialLR": {"total_iters": 17, "power": 2.0}},
    {"CosineAnnealingLR": {"T_max": 7}},
    {"CosineAnnealingLR": {"T_max": 20, "eta_min": 0.001}},
    {"CosineAnnealingWarmRestarts": {"T_0": 4}},
    {"CosineAnnealingWarmRestarts": {"T_0": 3, "T_mult": 2, "eta_min": 0.002}},
    {"CyclicLR": {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 4}},
    {"CyclicLR": {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 4, "step_size_down": 3, "mode": "triangular2"}},
    {"CyclicLR": {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 5, "mode": "exp_range", "gamma": 0.9, "cycle_momentum": False}},
    {"OneCycleLR": {"max_lr": 0.5, "total_steps": 24}},
    {"OneCycleLR": {"max_lr": 0.5, "epochs": 5, "steps_per_epoch": 6, "pct_start": 0.2, "anneal_strategy": "linear", "three_phase": True}},
    {"OneCycleLR": {"max_lr": 0.5, "total_steps": 30, "cycle_momentum": False, "div_factor": 10.0, "final_div_factor": 100.0}},
    {"SequentialLR": {"schedulers": [{"LinearLR": {"start_factor": 0.1, "total_iters": 6}}, {"CosineAnnealingLR": {"T_max": 12}}], "milestones": [6]}},
    {"SequentialLR": {"schedulers": [{"ConstantLR": {"factor": 0.1, "total_iters": 2}}, {"ExponentialLR": {"gamma": 0.9}}, {"PolynomialLR": {"total_iters": 8}}], "milestones": [2, 9]}},
    {"SequentialLR": {"schedulers": [{"ExponentialLR": {"gamma": 0.8}}, {"CosineAnnealingWarmRestarts": {"T_0": 4, "T_mult": 2}}, {"StepLR": {"step_size": 2}}], "milestones": [5, 14]}},
    {"SequentialLR": {"schedulers": [{"MultiStepLR": {"milestones": [2, 3]}}, {"LinearLR": {"total_iters": 4}}], "milestones": [8]}},
    {"ChainedScheduler": {"schedulers": [{"ConstantLR": {"factor": 0.1, "total_iters": 4}}, {"ExponentialLR": {"gamma": 0.9}}]}},
    {"ChainedScheduler": {"schedulers": [{"LinearLR": {"start_factor": 0.2, "total_iters": 5}}, {"CosineAnnealingLR": {"T_max": 10, "eta_min": 0.001}}]}},
]
# Schedulers that step by a metric, and what they are told.
FALLING = [1 / (i + 1) for i in range(STEPS)]
WAVES = [round(1 + 0.5 * math.sin(0.9 * i) - 0.01 * i, 6) for i in range(STEPS)]
PLATEAUS = [
    ({}, FALLING),
    ({"patience": 2}, WAVES),
    ({"factor": 0.5, "patience": 1, "cooldown": 3, "min_lr": 0.01}, WAVES),
    ({"mode": "max", "patience": 3, "threshold": 0.1, "threshold_mode": "abs"}, WAVES),
    ({"mode": "max", "patience": 0, "threshold": 0.05, "eps": 0.003}, FALLING),
    ({"patience": 1, "threshold": 0.02, "threshold_mode": "abs", "factor": 0.3}, FALLING),
    ({"patience": 1}, [0.5, math.nan, math.nan, 0.4, math.nan, 0.6, 0.7] + WAVES[7:]),
]


def build(case, optimizer):
    (name, args), = case.items()
    args = dict(args)
    if "schedulers" not in args:
        return getattr(lr_scheduler, name)(optimizer, **args)
    parts = [build(c, optimizer) for c in args.pop("schedulers")]
    if name == "ChainedScheduler":
        return lr_scheduler.ChainedScheduler(parts, optimizer=optimizer)
    return lr_scheduler.SequentialLR(optimizer, schedulers=parts, **args)


def cases():
    yield from ((case, None) for case in CASES)
    yield from (({"ReduceLROnPlateau": args}, metrics) for args, metrics in PLATEAUS)


out = {"torch": torch.__version__, "cases": []}
for case, metrics in cases():
    for optimizer in ("SGD", "Adam"):
        params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
        groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
        if optimizer == "SGD":
            o = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        else:
            o = torch.optim.Adam(groups, lr=0.1)
        s = build(case, o)
        rows = []
        for _ in range(STEPS + 1):
            rows.append([[g["lr"], g["betas"][0] if "betas" in g else g["momentum"]] for g in o.param_groups])
            o.step()
            if len(rows) <= STEPS:
                s.step() if metrics is None else s.step(metrics[len(rows) - 1])
        told = {"metrics": [str(m) for m in metrics]} if metrics else {}
        out["cases"].append({"optimizer": optimizer, "scheduler": case, "rates": rows, **told})
print(json.dumps(out, separators=(",", ":")))
