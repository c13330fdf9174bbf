"optimizers-of-parts: a training step, written by memplan export torch."
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
        self.layers = nn.ModuleList([nn.Linear(40, 120), nn.ReLU(), nn.LayerNorm(120), nn.Linear(120, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
matrices = torch.optim.SGD([p for name, p in model.named_parameters() if covers(["layers.0.weight", "layers.3.weight"], name)], lr=0.02, momentum=0.95, nesterov=True)
rest = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if covers(["*.bias", "layers.2"], name) and covers(["layers.2"], name)], "weight_decay": 0.0},
    {"params": [p for name, p in model.named_parameters() if covers(["*.bias", "layers.2"], name) and not covers(["layers.2"], name)], "lr": 0.0001},
], lr=0.0003)


def next_batch():
    x = torch.randn(16, 40)
    y = torch.zeros(16, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    matrices.zero_grad(set_to_none=True)
    rest.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    matrices.step()
    rest.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
