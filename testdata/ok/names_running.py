"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16))
        self.b = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16))

    def forward(self, x):
        x = x + self.a(x)
        x = x + self.b(x)
        return x


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.ReLU()])

    def forward(self, x):
        skip = x
        x = self.layers[0](x)
        x = self.layers[1](x)
        x = x + skip
        return x


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16)])

    def forward(self, x):
        x = self.layers[0](x)
        q = self.layers[1](x)
        k = self.layers[2](x)
        q = q + k
        x = q + x
        return x


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)])

    def forward(self, x):
        h = self.layers[0](x)
        h = self.layers[1](h)
        h = self.layers[2](h)
        x = h + x
        return x


class Rebound(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.ReLU()])

    def forward(self, x):
        h = self.layers[0](x)
        x = self.layers[1](h)
        x = h + x
        return x


class Freed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.ReLU()])

    def forward(self, x):
        h = self.layers[0](x)
        del x
        x = self.layers[1](h)
        x = h + x
        return x


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.ReLU()])

    def forward(self, v):
        h = self.layers[0](v)
        x = self.layers[1](h)
        x = h + x
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Stream(), Chain(), Several(), Residual(), Rebound(), Freed(), Own()])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(4, 16)
    y = torch.randn(4, 16)
    return x.to(device), y.to(device)


def step(i):
    optimizer.zero_grad(set_to_none=True)
    x, y = next_batch()
    out = model(x)
    out = F.relu(out)
    loss = F.mse_loss(out, y)
    loss = loss / 2
    loss.backward()
    x, y = next_batch()
    out = model(x)
    out = F.relu(out)
    loss = F.mse_loss(out, y)
    loss = loss / 2
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
