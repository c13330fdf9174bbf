"optimizer-in-backward: a training step, written by memplan export torch."
import fnmatch
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(40, 120), nn.ReLU(), nn.Linear(120, 60), nn.ReLU(), nn.Linear(60, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizers = {}
for p in [p for name, p in model.named_parameters() if not covers(["*.bias"], name)]:
    optimizers[p] = torch.optim.AdamW([p], lr=0.001, weight_decay=0.1)
for p in [p for name, p in model.named_parameters() if covers(["*.bias"], name)]:
    optimizers[p] = torch.optim.AdamW([p], lr=0.001, weight_decay=0.0)


def step_parameter(p):
    optimizers[p].step()
    optimizers[p].zero_grad()


for p in optimizers:
    p.register_post_accumulate_grad_hook(step_parameter)
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(16, 40)
    y = torch.zeros(16, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
