"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class NetG(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.ConvTranspose2d(100, 32, 4, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1, bias=False),
            nn.Tanh(),
        ])

    def forward(self, noise):
        x = self.layers[0](noise)
        for module in self.layers[1:5]:
            x = module(x)
        return x


class NetD(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 4, stride=2, padding=1, bias=False),
            nn.LeakyReLU(negative_slope=0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(256, 1),
            nn.Sigmoid(),
        ])

    def forward(self, image):
        x = self.layers[0](image)
        for module in self.layers[1:5]:
            x = module(x)
        return x


device = torch.device("cuda")
netG = NetG().to(device)
netD = NetD().to(device)
optG = torch.optim.Adam(netG.parameters())
optD = torch.optim.Adam(netD.parameters())
criterion0 = nn.BCELoss()
criterion1 = nn.BCELoss()
criterion2 = nn.BCELoss()


def next_batch():
    image = torch.randn(64, 3, 8, 8)
    return image.to(device),


def evaluate(i):
    netG.eval()
    with torch.no_grad():
        for _ in range(2):
            fake = netG(fixed_noise)
    netG.train()


fixed_noise = torch.randn(64, 100, 1, 1, device=device)
real = torch.ones(64, 1, device=device)
fake_label = torch.zeros(64, 1, device=device)


def step(i):
    image, = next_batch()
    optD.zero_grad(set_to_none=True)
    output = netD(image)
    errD_real = criterion0(output, real)
    errD_real.backward()
    noise = torch.randn(64, 100, 1, 1, device=device)
    fake = netG(noise)
    output = netD(fake.detach())
    errD_fake = criterion1(output, fake_label)
    errD_fake.backward()
    optD.step()
    optG.zero_grad(set_to_none=True)
    output = netD(fake)
    errG = criterion2(output, real)
    errG.backward()
    optG.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    if i % 2 == 0:
        evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
