"checkpoint-modules: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x):
        identity = x
        x = self.mlp(x)
        x = identity + x
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Residual() for _ in range(4)])
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.blocks[0](x)
        x = torch.utils.checkpoint.checkpoint(self.blocks[1], x, use_reentrant=False)
        x = self.blocks[2](x)
        x = torch.utils.checkpoint.checkpoint(self.blocks[3], x, use_reentrant=False)
        x = self.head(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters())


def next_batch():
    x = torch.randn(8, 32)
    y = torch.zeros(8, dtype=torch.int64)
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
