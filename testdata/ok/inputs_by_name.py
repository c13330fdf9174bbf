"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32)])

    def forward(self, x, mask):
        q = self.layers[0](x)
        return q + mask


class Kw(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        return x * mask


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Attn()
        self.k = Kw()
        self.mha = nn.MultiheadAttention(32, 4)
        self.b = Attn()
        self.layers = nn.ModuleList([nn.MultiheadAttention(32, 4), nn.Linear(32, 10)])

    def scale(self, t, by):
        return t * by

    def forward(self, x, m):
        h = self.a(x, m)
        h = self.a(h, m)
        h = self.a(h, m)
        h = self.a(h, m)
        h = self.scale(h, m)
        h = self.b(h, torch.tanh(m))
        h = self.k(h, mask=m)
        h = self.mha(h, h, torch.tanh(h))[0]
        h = self.layers[0](h, h, h)[0]
        h = h - m
        h = F.softmax(h, 1)
        x = torch.mean(h, (1,))
        x = self.layers[1](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(2, 16, 32)
    m = torch.randn(2, 16, 32)
    y = torch.zeros(2, dtype=torch.int64)
    return x.to(device), m.to(device), y.to(device)


def step(i):
    x, m, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x, m)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
