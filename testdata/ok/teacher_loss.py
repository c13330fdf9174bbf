"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 12)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Linear(50, 400),
            nn.BatchNorm1d(400),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(400, 12),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
teacher = Teacher().to(device)
teacher.eval()
optimizer = torch.optim.Adam(model.parameters())


def next_batch():
    x = torch.randn(30, 50)
    y = torch.zeros(30, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        teacher_out = teacher(x)
    out = model(x)
    soft = F.mse_loss(out, teacher_out)
    hard = F.cross_entropy(out, y)
    loss = soft + hard
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
