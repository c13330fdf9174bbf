"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 32)])

    def forward(self, x):
        h = self.layers[0](x)
        a, b = h.chunk(2, 1)
        return (a, [b, h])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16), Split(), nn.Linear(192, 10)])

    def fuse(self, xs, y):
        xs = xs[::-1] + [y]
        z = torch.cat(xs[:2], 1)
        return z, xs[1:]

    def grow(self, xs, y):
        xs.append(y)
        return xs

    def take(self, xs):
        t = xs.pop()
        xs = xs[:1] * 2
        return (t, *xs)

    def forward(self, x):
        x = self.layers[0](x)
        e = []
        h = self.layers[1](x)
        e.append(h)
        e += [x, h]
        a, rest = self.layers[2](e[-1])
        b, c = rest
        z, e = self.fuse([b] + e, a)
        d = e[1:] + [z]
        g = self.grow(d, a)
        d2 = e[1:] + [z]
        g2 = self.grow(d2, a)
        t, u, v = self.take(d)
        n = 5
        k = 1.25
        y = torch.pow(u - (v * 1.25), 2) + torch.neg(t)
        y = (y * 1.5) - (2 / (torch.pow(t, 2) + 1))
        y += u
        x = torch.cat([y, *g[1:], *d2, x], 1)
        out = self.layers[3](x)
        out *= 0.5
        return out


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(4, 8)
    label = torch.zeros(4, dtype=torch.int64)
    return x.to(device), label.to(device)


def step(i):
    x, label = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, label)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
