"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(300, 3, 32, 32)
    y = torch.zeros(300, dtype=torch.int64)
    return x, y


def next_eval_batch():
    x = torch.randn(700, 3, 32, 32)
    y = torch.zeros(700, dtype=torch.int64)
    return x, y


def evaluate(i):
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            x, y = next_eval_batch()
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss = criterion(out, y)
    model.train()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    x, y = next_batch()
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
