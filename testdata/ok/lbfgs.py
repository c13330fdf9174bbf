"lbfgs: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(40, 120), nn.Tanh(), nn.Linear(120, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, tolerance_grad=-1.0, tolerance_change=-1.0, history_size=4, line_search_fn="strong_wolfe")
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(16, 40)
    y = torch.zeros(16, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()

    def closure():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(x)
            loss = criterion(out, y)
        loss.backward()
        return loss

    optimizer.step(closure)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
