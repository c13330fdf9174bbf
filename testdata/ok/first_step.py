"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 20)])

    def forward(self, z):
        x = self.layers[0](z)
        x = self.layers[1](x)
        x = self.layers[2](x)
        return x


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(20, 40), nn.LeakyReLU(negative_slope=0.2), nn.Linear(40, 1)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
G_ = G().to(device)
D_ = D().to(device)
optG = torch.optim.Adam(G_.parameters())
optD = torch.optim.Adam(D_.parameters())


def next_batch():
    x = torch.randn(12, 20)
    return x.to(device),


def evaluate(i):
    G_.eval()
    with torch.no_grad():
        for _ in range(2):
            z = torch.randn(5, 8, device=device)
            shown = G_(z)
    G_.train()


for i in range(3):
    torch.cuda.reset_peak_memory_stats()
    x, = next_batch()
    z = torch.randn(12, 8, device=device)
    optD.zero_grad(set_to_none=True)
    with torch.no_grad():
        fake = G_(z)
    loss = torch.mean(D_(fake) - D_(x))
    loss.backward()
    optD.step()
    if i % 2 == 0:
        optG.zero_grad(set_to_none=True)
        fake = G_(z)
        loss_g = torch.neg(torch.mean(D_(fake)))
        loss_g.backward()
        optG.step()
    if i % 3 == 0:
        torch.cuda.empty_cache()
    if i % 2 == 0:
        evaluate(i)
    print(json.dumps({"step": i + 1, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
