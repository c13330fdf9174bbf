"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48, bias=False)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        x = self.norm(x)
        x = self.qkv(x)
        q, k, v = x.chunk(3, -1)
        scale = 0.35355339059327373
        k = k.transpose(-2, -1)
        dots = F.softmax((q @ k) * 0.35355339059327373, -1)
        x = self.out(dots @ v)
        return x


class Ff(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([Attn(), Ff()]) for _ in range(3)])
        self.down = nn.ModuleList([
            nn.ModuleList([nn.Linear(16, 16), nn.ReLU()]),
            nn.ModuleList([nn.Linear(16, 32), nn.ReLU()]),
            nn.ModuleList([nn.Linear(32, 8), nn.Tanh()]),
        ])
        self.heads = nn.ModuleDict({"cls": nn.Linear(8, 10), "aux": nn.ModuleList([nn.Linear(8, 10)])})

    def forward(self, x):
        r = self.layers[0][0](x)
        x = r + x
        r = self.layers[0][1](x)
        x = r + x
        r = self.layers[1][0](x)
        x = r + x
        r = self.layers[1][1](x)
        x = r + x
        r = self.layers[2][0](x)
        x = r + x
        r = self.layers[2][1](x)
        x = r + x
        hs = []
        x = self.down[0][0](x)
        x = self.down[0][1](x)
        hs.append(x)
        x = self.down[1][0](x)
        x = self.down[1][1](x)
        hs.append(x)
        x = self.down[2][0](x)
        x = self.down[2][1](x)
        hs.append(x)
        total = 0
        h = hs[0]
        m = torch.mean(h)
        total = 0 + (m * 0)
        h = hs[1]
        m = torch.mean(h)
        total = total + (m * 1)
        h = hs[2]
        m = torch.mean(h)
        total = total + (m * 2)
        x = torch.mean(x, (1,))
        y = self.heads.cls(x)
        z = self.heads.aux[0](hs[-1])
        z = torch.mean(z)
        out = (y + total) + z
        return out


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(4, 6, 16)
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
