"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


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
            c.grad = None if p.grad is None else p.grad.cpu()
    optimizer.step()
    with torch.no_grad():
        for p, c in zip(params, copies):
            p.copy_(c)


model = Model().to(device)
optimizer_params = list(model.parameters())
optimizer_copies = [p.detach().cpu().requires_grad_() for p in optimizer_params]
optimizer = torch.optim.SGD(optimizer_copies, momentum=0.9)
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(20, 100)
    y = torch.zeros(20, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    model.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    bring_back(optimizer, optimizer_params, optimizer_copies, True)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
