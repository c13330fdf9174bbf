"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Basic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(16, 16, 3, stride=1, padding=1, bias=False)])

    def forward(self, x):
        identity = x
        x = self.layers[0](x)
        x = x + identity
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3, padding=1, bias=True),
            nn.ReLU(),
            Basic(),
            Basic(),
            nn.Flatten(),
            nn.Linear(1024, 10),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(4, 3, 8, 8)
    y = torch.zeros(4, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
