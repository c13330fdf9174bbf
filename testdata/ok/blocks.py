"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.layers = nn.ModuleList([nn.ReLU(inplace=True)])

    def forward(self, x):
        h = self.fc(self.norm(x))
        h = self.layers[0](h)
        return x + h


class Residual2(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        h = self.fc(self.norm(x))
        return x + h


class Two(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        s = a + b
        d = a - b
        return s, d


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Residual(), Residual(), Residual(), Residual2(), Two(), Two()])

    def forward(self, x):
        for module in self.layers[0:3]:
            x = module(x)
        r = self.layers[3](x)
        s, d = self.layers[4](x, r)
        t = self.layers[5](s, d)[1]
        return t


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(4, 8)
    y = torch.randn(4, 8)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
