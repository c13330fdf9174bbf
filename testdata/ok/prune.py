"prune: a training step, written by memplan export torch."
import fnmatch
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Smaller(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 89), nn.ReLU(), nn.Linear(89, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


def mask_weights(model, kinds, modules, excluded, amount):
    """Masks the weights of layers: each becomes weight_mask * weight_orig before every forward."""
    def fits(patterns, path):
        return any(fnmatch.fnmatchcase(path, p) for p in patterns)

    for path, layer in model.named_modules():
        if type(layer) in kinds and fits(modules, path) and not fits(excluded, path):
            prune.l1_unstructured(layer, "weight", amount=amount)


device = torch.device("cuda")
masked = Masked()
mask_weights(masked, [nn.Linear], ["*"], ["layers.2", "*.layers.2"], amount=0.3)
masked.to(device)
smaller = Smaller().to(device)
optimizer = torch.optim.AdamW([p for m in (masked, smaller) for p in m.parameters()])


def next_batch():
    x = torch.randn(32, 64)
    y = torch.zeros(32, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    optimizer.zero_grad(set_to_none=True)
    x, y = next_batch()
    a = masked(x)
    b = smaller(x)
    loss = F.cross_entropy(a + b, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
