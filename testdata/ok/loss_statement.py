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
optimizer = torch.optim.Adam(model.parameters())


def next_batch():
    x = torch.randn(2, 4)
    y = torch.randn(2, 4)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    mse = F.mse_loss(out, y)
    l1 = F.l1_loss(out, y)
    total = mse + (0.1 * l1)
    loss = total
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
