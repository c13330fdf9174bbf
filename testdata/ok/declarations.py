"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Res(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(4, 1, 1))
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.skip = nn.Conv2d(4, 8, 1)

    def forward(self, x, n):
        h = self.conv(x * self.scale)
        x = self.skip(x)
        return x + h


class Res2(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(8, 1, 1))
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x, n):
        h = self.conv(x * self.scale)
        return x + h


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Res()
        self.second = Res2()
        self.head = nn.Linear(8, 10)

    def forward(self, image):
        h = self.first(image, image)
        h = self.second(h, h)
        x = torch.mean(h, (2, 3))
        x = self.head(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    image = torch.randn(1, 4, 8, 8)
    y = torch.zeros(1, dtype=torch.int64)
    return image.to(device), y.to(device)


def step(i):
    image, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(image)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
