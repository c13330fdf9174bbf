"blocks of the script: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 3, 3, padding=1),
        ])

    def forward(self, image):
        with torch.no_grad():
            x = self.layers[0](image)
            x = self.layers[1](x)
            x = self.layers[2](x)
        x = self.layers[3](x)
        return x


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()])

    def forward(self, x):
        h = self.layers[0](x)
        x = self.layers[1](h)
        return x


device = torch.device("cuda")
net = Net().to(device)
opt = torch.optim.SGD(net.parameters())
percep = Features().to(device)


def next_batch():
    image = torch.randn(4, 3, 24, 24)
    target = torch.randn(4, 3, 24, 24)
    return image.to(device), target.to(device)


def twice(x):
    y = net(x) + net(x)
    return y


def gram(f):
    f = torch.flatten(f, 2)
    t = f.transpose(1, 2)
    g = torch.bmm(f, t)
    return g


def distance(a, b):
    x = F.mse_loss(gram(a), gram(b))
    return x


def step(i):
    image, target = next_batch()
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = twice(image)
        fo = percep(out)
        with torch.no_grad():
            ft = percep(target)
        loss = distance(fo, ft)
        if i % 2 == 0:
            extra = F.mse_loss(net(image), target)
            loss = loss + extra
    loss.backward()
    opt.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
