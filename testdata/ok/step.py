"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):
        x = self.layers[0](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.MSELoss()


def next_batch():
    x = torch.randn(1, 4)
    y = torch.randn(1, 4)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=False)
    out = model(x)
    loss = criterion(out, y)
    loss.backward(retain_graph=True)
    loss.backward()
    if i % 2 == 0:
        optimizer.step()
    if i % 3 == 0:
        torch.cuda.empty_cache()
    kept = out.detach()
    del kept
    with torch.no_grad():
        eval_out = model(x)
        eval_out = model(x)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
