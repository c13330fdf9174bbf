"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Linear(16, 10),
        ])

    def forward(self, x):
        for module in self.layers[0:4]:
            x = module(x)
        x = x.view(8, -1)
        x = self.layers[4](x)
        return x


class Model2(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Linear(16, 10),
        ])

    def forward(self, x):
        for module in self.layers[0:4]:
            x = module(x)
        x = x.view(20, -1)
        x = self.layers[4](x)
        return x


class Model3(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Linear(16, 10),
        ])

    def forward(self, x):
        for module in self.layers[0:4]:
            x = module(x)
        x = x.view(10, -1)
        x = self.layers[4](x)
        return x


device = torch.device("cuda")


def share(model, like):
    """Gives a model the parameters and buffers of one that is made like it. Modules without any may be in one only."""
    model._parameters, model._buffers = like._parameters, like._buffers
    for name in model._modules.keys() & like._modules.keys():
        share(model._modules[name], like._modules[name])
    return model


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters())
criterion = nn.CrossEntropyLoss()
model_for_eval = share(Model2(), model)
model_for_last_batch = share(Model3(), model)


def next_batch():
    x = torch.randn(8, 3, 20, 24)
    y = torch.zeros(8, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_eval_batch():
    x = torch.randn(20, 3, 20, 24)
    y = torch.zeros(20, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_last_eval_batch():
    x = torch.randn(10, 3, 20, 24)
    y = torch.zeros(10, dtype=torch.int64)
    return x.to(device), y.to(device)


def evaluate(i):
    model_for_eval.eval()
    model_for_last_batch.eval()
    with torch.no_grad():
        for _ in range(1):
            x, y = next_eval_batch()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model_for_eval(x)
                loss = F.cross_entropy(out, y)
                all = out
            x, y = next_eval_batch()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model_for_eval(x)
                loss = F.cross_entropy(out, y)
                all = torch.cat([all, out])
            x, y = next_last_eval_batch()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model_for_last_batch(x)
                loss = F.cross_entropy(out, y)
                all = torch.cat([all, out])
    model_for_eval.train()
    model_for_last_batch.train()


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
        loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
