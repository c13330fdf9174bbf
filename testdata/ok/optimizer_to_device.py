"a model: a training step, written by memplan export torch."
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
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
first = torch.optim.Adagrad([p for name, p in model.named_parameters() if covers(["layers.0.*"], name)])
second = torch.optim.RMSprop([p for name, p in model.named_parameters() if covers(["layers.2.*"], name)])


def next_batch():
    x = torch.randn(12, 64)
    return x.to(device),


for state in first.state.values():
    for key, value in state.items():
        state[key] = value.to(device)


def step(i):
    x, = next_batch()
    out = model(x)
    loss = torch.mean(out)
    loss.backward()
    first.step()
    second.step()
    first.zero_grad(set_to_none=True)
    second.zero_grad(set_to_none=True)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
