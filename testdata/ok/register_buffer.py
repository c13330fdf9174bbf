"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Normalize(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.zeros(1), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            most = torch.amax(x, (0, 1), True)
            self.scale = most.reshape(1)
        x = x / self.scale
        return x


class Longrope(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("f", torch.zeros(8), persistent=False)
        self.register_buffer("g", torch.zeros(8), persistent=False)
        self.register_buffer("h", torch.zeros(8))

    def forward(self, x):
        self.f = self.g
        self.h = self.f * 2.0
        x = x + torch.sum(self.h)
        x = x + torch.sum(self.f)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), Normalize(), Longrope(), nn.Linear(4, 3)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device=device, dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())


def next_batch():
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    return x.to(device),


def step(i):
    x, = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = torch.mean(out)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
