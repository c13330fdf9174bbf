"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 50)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.MSELoss()


def next_batch():
    x = torch.randn(3000, 50)
    y = torch.randn(3000, 50)
    return x.to(device), y.to(device)


def evaluate(i):
    model.eval()
    kept = []
    with torch.no_grad():
        for _ in range(2):
            z = torch.randn(5, 50, device=device)
            b = model(z)
            kept.append(b)
    model.train()


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
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
