"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(4, 4)])

    def forward(self, x):
        h = self.layers[0](x)
        xs = []
        xs.append(F.relu(h[:, 0]))
        xs.append(F.relu(h[:, 1]))
        xs.append(F.relu(h[:, 2]))
        xs.append(torch.tanh(h[:, 4:, 4]))
        a = h[0][1]
        b = xs[0][1]
        xs.append(h[:, -1])
        c = torch.cat([xs[0], h[:, 3]], 1)
        d = (xs.pop() * a) + b
        x = torch.sum(torch.mean(c) * d)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def next_batch():
    x = torch.randn(32, 8, 16)
    y = torch.randn(32, 1)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = torch.sum(torch.square(out))
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
