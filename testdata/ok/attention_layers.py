"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, norm_first=True),
        ])

    def forward(self, x):
        h, _ = self.layers[0](x, x, x)
        x = self.layers[1](h)
        z = x[:, 0:6, None]
        x = z.squeeze((2,))
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.SmoothL1Loss()


def next_batch():
    x = torch.randn(1, 6, 8)
    y = torch.randn(1, 6, 8)
    return x.to(device), y.to(device)


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
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
