"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(12, 64)
    return x.to(device),


def step(i):
    x, = next_batch()
    out = model(x)
    loss = torch.mean(out)
    if i % 3 == 1:
        torch.cuda.empty_cache()
    if i % 3 == 0:
        torch.cuda.empty_cache()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
