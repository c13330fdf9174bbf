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


def next_batch():
    x = torch.randn(1, 4)
    y = torch.randn(1, 4)
    return x.to(device), y.to(device)


batch = next_batch()


def step(i):
    optimizer.zero_grad(set_to_none=True)
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
