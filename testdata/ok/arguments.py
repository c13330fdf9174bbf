"arguments: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(20, 20), nn.Linear(40, 6)])

    def forward(self, x, i, mask, y):
        h = self.layers[0](x)
        a = h.masked_fill(mask, -1e+09)
        g = torch.gather(h, 1, i)
        b = torch.where(mask, a, h)
        b = torch.lerp(a, b, 0.5)
        b = 1 - torch.pow(2.0, b)
        b = b.index_add_(1, torch.arange(0, 6, 2, device=device), g)
        c, d = b.split((5, 15), -1)
        e = b[torch.arange(5, device=device), y]
        x = torch.cat([torch.mean(c, (1,)), torch.mean(d, (1,)), e], 1)
        x = x * torch.cumprod(torch.arange(1.0, 2.0, 0.025, device=device), 0)
        x = x + x[0]
        x = x.neg_()
        x = x.pow_(2)
        x = self.layers[1](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(5, 6, 20)
    i = torch.zeros(5, 3, 20, dtype=torch.int64)
    mask = torch.zeros(5, 6, 20, dtype=torch.bool)
    y = torch.zeros(5, dtype=torch.int64)
    return x.to(device), i.to(device), mask.to(device), y.to(device)


def step(i_):
    x, i, mask, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x, i, mask, y)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for i_ in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i_)
    print(json.dumps({"step": i_, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
