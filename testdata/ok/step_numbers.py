"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 16)])

    def forward(self, x, s):
        x = self.layers[0](x)
        x = (x * 0.5) + 0.125
        n, m = 4, [8, 16]
        k = 16
        x = torch.pow(x, 16) / 8
        return x


class Scaled2(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16)])

    def forward(self, x, s):
        x = self.layers[0](x)
        x = (x * 0.2886751345948129) + 0.125
        n, m = 4, [8, 16]
        k = 16
        x = torch.pow(x, 16) / 8
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Scaled(), nn.ReLU(), Scaled2(), nn.Linear(16, 10)])

    def forward(self, x):
        x = self.layers[0](x, 0.5)
        x = self.layers[1](x)
        x = self.layers[2](torch.pow(2, x), 0.2886751345948129)
        x = self.layers[3](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(8, 12)
    label = torch.zeros(8, dtype=torch.int64)
    return x.to(device), label.to(device)


def step(i):
    x, label = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, label)
    total = 0
    losses = []
    total = 0 + loss.item()
    mean = ((-total) / 3) + 1
    losses.append(loss.item())
    pair = (loss, loss.item())
    best, last = pair
    loss = (loss * 0.5) + best
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
