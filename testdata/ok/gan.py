"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Gen(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)])

    def forward(self, z):
        x = self.layers[0](z)
        x = self.layers[1](x)
        x = self.layers[2](x)
        return x


class Dis(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 16), nn.LeakyReLU(negative_slope=0.2), nn.Linear(16, 1)])

    def forward(self, real):
        x = self.layers[0](real)
        x = self.layers[1](x)
        x = self.layers[2](x)
        return x


device = torch.device("cuda")
gen = Gen().to(device)
dis = Dis().to(device)
opt_g = torch.optim.Adam(gen.parameters(), lr=0.0001)
opt_d = torch.optim.SGD(dis.parameters(), lr=0.001, momentum=0.9)


def next_batch():
    z = torch.randn(4, 8)
    real = torch.randn(4, 4)
    return z.to(device), real.to(device)


def step(i):
    z, real = next_batch()
    fake = gen(z)
    d_real = dis(real)
    d_fake = dis(fake.detach())
    loss_d = torch.mean(d_fake - d_real)
    opt_d.zero_grad(set_to_none=True)
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad(set_to_none=True)
    d_fake = dis(fake)
    loss_g = torch.mean(torch.neg(d_fake))
    loss_g.backward()
    opt_g.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
