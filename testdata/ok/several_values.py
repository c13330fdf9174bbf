"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 12), nn.Linear(4, 12)])

    def forward(self, x):
        a = self.layers[0](x)
        b = self.layers[1](a)
        a, b = F.relu(b), torch.tanh(a)
        a, b, x = a, F.relu(b), torch.sigmoid(x)
        b = self.layers[2](b)
        x = a + b
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(1, 4)
    y = torch.randn(1, 12)
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
