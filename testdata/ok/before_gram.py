"a model: a training step, written by memplan export torch."
import fnmatch
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Vgg(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
        ])

    def forward(self, image):
        x = self.layers[0](image)
        low = self.layers[1](x)
        x = self.layers[2](low)
        x = self.layers[3](x)
        high = self.layers[4](x)
        return low, high


device = torch.device("cuda")
net = Net().to(device)
vgg = Vgg().to(device)
vgg.eval()
for name, p in vgg.named_parameters(remove_duplicate=False):
    if covers(["*"], name):
        p.requires_grad_(False)
adam = torch.optim.Adam(net.parameters())


def next_batch():
    x = torch.randn(4, 3, 64, 64)
    return x.to(device),


style = torch.randn(4, 3, 64, 64, device=device)
with torch.no_grad():
    f1, f2 = vgg(style)
x = f1.view(4, 8, 4096)
g1 = torch.bmm(x, x.transpose(1, 2))
x = f2.view(4, 16, 1024)
g2 = torch.bmm(x, x.transpose(1, 2))
del style, f1, f2
del x


def step(i):
    x, = next_batch()
    adam.zero_grad(set_to_none=True)
    out = net(x)
    _, content = vgg(x)
    low, high = vgg(out)
    content_loss = F.mse_loss(high, content)
    low = low.view(4, 8, 4096)
    s1 = F.mse_loss(torch.bmm(low, low.transpose(1, 2)), g1)
    high = high.view(4, 16, 1024)
    s2 = F.mse_loss(torch.bmm(high, high.transpose(1, 2)), g2)
    loss = content_loss + (s1 + s2)
    loss.backward()
    adam.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
