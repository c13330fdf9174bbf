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
        self.layers = nn.ModuleList([nn.Linear(100, 333), nn.BatchNorm1d(333), nn.ReLU(), nn.Linear(333, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")


def bring_back(optimizer, params, copies, take):
    """Steps an optimizer of copies on the CPU; take: with the gradients on the GPU."""
    if take:
        for p, c in zip(params, copies):
            c.grad = None
            c.grad = None if p.grad is None else p.grad.cpu().pin_memory()
    optimizer.step()
    with torch.no_grad():
        for p, c in zip(params, copies):
            p.copy_(c)


def move_gradient(copy):
    def hook(p):
        grad = p.grad.cpu().pin_memory()
        if copy.grad is None:
            copy.grad = grad
        else:
            copy.grad += grad
        p.grad = None
    return hook


model = Model().to(device)
for name, p in model.named_parameters(remove_duplicate=False):
    if covers(["layers.0"], name):
        p.requires_grad_(False)
optimizer_params = [p for p in model.parameters() if p.requires_grad]
optimizer_copies = [p.detach().cpu().pin_memory().requires_grad_() for p in optimizer_params]
optimizer = torch.optim.AdamW(optimizer_copies)
for p, c in zip(optimizer_params, optimizer_copies):
    p.register_post_accumulate_grad_hook(move_gradient(c))
criterion0 = nn.CrossEntropyLoss()
criterion1 = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(20, 100)
    y = torch.zeros(20, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    optimizer.zero_grad(set_to_none=True)
    model.zero_grad(set_to_none=True)
    x, y = next_batch()
    out = model(x)
    loss = criterion0(out, y)
    loss = loss / 2
    loss.backward()
    x, y = next_batch()
    out = model(x)
    loss = criterion1(out, y)
    loss = loss / 2
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer_copies, 1.0)
    bring_back(optimizer, optimizer_params, optimizer_copies, False)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
