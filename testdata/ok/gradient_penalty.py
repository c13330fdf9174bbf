"gradient penalty: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Linear(100, 128),
            nn.LeakyReLU(negative_slope=0.2, inplace=True),
            nn.Linear(128, 784),
            nn.Tanh(),
        ])

    def forward(self, z):
        x = self.layers[0](z)
        for module in self.layers[1:4]:
            x = module(x)
        return x


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Linear(784, 512),
            nn.LeakyReLU(negative_slope=0.2, inplace=True),
            nn.Linear(512, 256),
            nn.LeakyReLU(negative_slope=0.2, inplace=True),
            nn.Linear(256, 1),
        ])

    def forward(self, real):
        x = self.layers[0](real)
        for module in self.layers[1:5]:
            x = module(x)
        return x


device = torch.device("cuda")
net = Net().to(device)
critic = Critic().to(device)
opt_g = torch.optim.Adam(net.parameters())
opt_d = torch.optim.Adam(critic.parameters())


def next_batch():
    z = torch.randn(64, 100)
    real = torch.randn(64, 784)
    return z.to(device), real.to(device)


def penalty(real, fake):
    alpha = torch.rand(64, 1, device=device)
    hat = (alpha * real) + ((1 - alpha) * fake)
    hat = hat.requires_grad_()
    d = critic(hat)
    g = torch.autograd.grad(d, hat, grad_outputs=torch.ones_like(d), retain_graph=True, create_graph=True)[0]
    n = g.norm(2.0, (1,))
    x = torch.mean(torch.pow(n - 1, 2))
    return x


def step(i):
    z, real = next_batch()
    opt_d.zero_grad(set_to_none=True)
    fake = net(z)
    fd = fake.detach()
    gp = penalty(real, fd)
    loss = torch.mean(critic(fd)) - torch.mean(critic(real))
    loss = loss + gp
    loss.backward()
    opt_d.step()
    if i % 2 == 0:
        opt_g.zero_grad(set_to_none=True)
        g_loss = torch.neg(torch.mean(critic(fake)))
        g_loss.backward()
        opt_g.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
