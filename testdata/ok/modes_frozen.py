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
        self.layers = nn.ModuleList([nn.Conv2d(4, 35, 3, padding=1)])

    def forward(self, image):
        x = self.layers[0](image)
        return x


class Feat(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.BatchNorm2d(35)])

    def forward(self, picture):
        x = self.layers[0](picture)
        return x


device = torch.device("cuda")
net = Net().to(device)
feat = Feat().to(device)
feat.eval()
for name, p in feat.named_parameters(remove_duplicate=False):
    if covers(["*"], name):
        p.requires_grad_(False)
opt = torch.optim.SGD(net.parameters())


def next_batch():
    image = torch.randn(36, 4, 27, 30)
    label = torch.randn(36, 3)
    return image.to(device), label.to(device)


def step(i):
    image, label = next_batch()
    opt.zero_grad(set_to_none=True)
    out = net(image)
    low = feat(out)
    loss = torch.mean(low)
    loss.backward()
    opt.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
