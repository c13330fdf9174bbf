"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(16, 4))
        self.b = nn.Parameter(torch.zeros(2, 4))

    def forward(self, x):
        l = x[:, -1] @ self.a[:8, :]
        r = x[:, 0] @ self.a[8:]
        h = l + r
        h = h * self.b[0]
        s = torch.stack([h[0], h[-1]], 0)
        h = h + torch.mean(s, (0,))
        return h


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())


def next_batch():
    x = torch.randn(5, 6, 8)
    y = torch.randn(5, 4)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
