"forward_autocast: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


def under_autocast(dtype, call, *args):
    """Calls a model under autocast, which ends with the call, as accelerate does."""
    with torch.autocast("cuda", dtype=dtype):
        return call(*args)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)])

    def forward(self, x):
        x = self.layers[0](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(2, 8)
    return x.to(device),


def step(i):
    x, = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
        loss = torch.mean(out)
    lower = under_autocast(torch.bfloat16, model, x)
    full = model(x)
    loss = loss + (torch.mean(lower) + torch.mean(full))
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
