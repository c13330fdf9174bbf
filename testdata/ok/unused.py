"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 64),
            nn.ReLU(),
            nn.Linear(64, 5),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Head2(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(20, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Head3(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(20, 64),
            nn.ReLU(),
            nn.Linear(64, 3),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3)
        self.aux = Head()
        self.layers = nn.ModuleList([
            nn.ReLU(),
            nn.Sequential(nn.Conv2d(16, 24, 3), nn.BatchNorm2d(24)),
            nn.Conv2d(16, 20, 3),
            Head2(),
        ])
        self.spare = Head3()

    def forward(self, x):
        x = self.stem(x)
        x = self.layers[0](x)
        x = self.layers[2](x)
        out = self.layers[3](x)
        return out


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(16, 3, 32, 32)
    y = torch.zeros(16, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_eval_batch():
    x = torch.randn(32, 3, 32, 32)
    y = torch.zeros(32, dtype=torch.int64)
    return x.to(device), y.to(device)


def evaluate(i):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            x, y = next_eval_batch()
            out = model(x)
            loss = criterion(out, y)
    model.train()


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ema.update_parameters(model)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
