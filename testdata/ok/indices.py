"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos = nn.Parameter(torch.zeros(32, 16))
        self.layers = nn.ModuleList([nn.Linear(16, 10)])

    def forward(self, x):
        h = x[:, :3]
        h = h + self.pos[:3]
        k = self.pos[8:11]
        h = h + k
        m = 2
        a = h[:, 2]
        b = x[..., None, -3:]
        c = h[0]
        d = h[:, 0, None, 1]
        c = h[1]
        d = h[:, 1, None, 1]
        e = self.pos[3]
        a = a + e
        x = self.layers[0](a)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(4, 8, 16)
    y = torch.zeros(4, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
