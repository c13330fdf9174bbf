"convolutional critic: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 4, stride=2, padding=1),
            nn.LeakyReLU(negative_slope=0.2, inplace=True),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.LeakyReLU(negative_slope=0.2, inplace=True),
            nn.Conv2d(32, 64, 3, stride=1, padding=1, bias=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4096, 1),
        ])

    def forward(self, real):
        x = self.layers[0](real)
        for module in self.layers[1:8]:
            x = module(x)
        return x


device = torch.device("cuda")
critic = Critic().to(device)
opt_d = torch.optim.Adam(critic.parameters())


def next_batch():
    real = torch.randn(8, 3, 32, 32)
    fake = torch.randn(8, 3, 32, 32)
    return real.to(device), fake.to(device)


def penalty(real, fake):
    alpha = torch.rand(8, 1, 1, 1, device=device)
    hat = (alpha * real) + ((1 - alpha) * fake)
    hat = hat.requires_grad_()
    d = critic(hat)
    g = torch.autograd.grad(d, hat, grad_outputs=torch.ones_like(d), retain_graph=True, create_graph=True)[0]
    g = g.view(8, -1)
    n = g.norm(2.0, (1,))
    x = torch.mean(torch.pow(n - 1, 2))
    return x


def step(i):
    real, fake = next_batch()
    opt_d.zero_grad(set_to_none=True)
    gp = penalty(real, fake)
    loss = torch.mean(critic(fake)) - torch.mean(critic(real))
    loss = loss + gp
    loss.backward()
    opt_d.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
