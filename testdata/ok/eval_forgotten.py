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
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(20, 100)
    y = torch.zeros(20, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_eval_batch():
    x = torch.randn(20, 100)
    y = torch.zeros(20, dtype=torch.int64)
    return x.to(device), y.to(device)


def evaluate(i):
    total = 0.0
    for _ in range(2):
        x, y = next_eval_batch()
        out = model(x)
        loss = criterion(out, y)
        total += loss


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
