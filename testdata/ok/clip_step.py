"a step of its own with two optimizers, clipped apart: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(10, 20), nn.ReLU()])

    def forward(self, x):
        x = self.layers[0](x)
        x = self.layers[1](x)
        return x


class B(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(20, 5)])

    def forward(self, h):
        x = self.layers[0](h)
        return x


device = torch.device("cuda")
a = A().to(device)
b = B().to(device)
oa = torch.optim.SGD(a.parameters(), momentum=0.9)
ob = torch.optim.AdamW(b.parameters())


def next_batch():
    x = torch.randn(4, 10)
    h = torch.randn(4, 20)
    y = torch.randn(4, 5)
    return x.to(device), h.to(device), y.to(device)


def step(i):
    x, h, y = next_batch()
    oa.zero_grad(set_to_none=True)
    ob.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = a(x)
        out = b(h)
        loss = F.mse_loss(out, y)
    loss = loss * 2
    loss.backward()
    nn.utils.clip_grad_norm_(a.parameters(), 1.0)
    nn.utils.clip_grad_value_(b.parameters(), 0.1)
    oa.step()
    ob.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
