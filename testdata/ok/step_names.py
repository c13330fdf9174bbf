"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(80, 40)])
        self.step = nn.Linear(40, 50)

    def forward(self, model):
        json = self.layers[0](model)
        x = self.step(json)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())


def next_batch():
    model_ = torch.randn(6, 80)
    device_ = torch.zeros(6, dtype=torch.int64)
    return model_.to(device), device_.to(device)


def step(i):
    model_, device_ = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(model_)
    optimizer_ = F.cross_entropy(out, device_)
    criterion = optimizer_ * 2.0
    loss = optimizer_ + criterion
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
