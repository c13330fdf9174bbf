"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(30, 10)])

    def forward(self, x):
        x = self.layers[0](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(20, 30)
    y = torch.zeros(20, dtype=torch.int64)
    return x.to(device), y.to(device)


kept = []
total = 0.0


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    kept_ = model(x)
    total_ = F.cross_entropy(kept_, y)
    total_.backward()
    optimizer.step()
    if i % 2 == 0:
        kept.append(kept_)
    total += total_.detach()
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
