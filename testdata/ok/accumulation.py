"microbatches, clipping, autocast with a scaler: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 7)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cuda")


def next_batch():
    x = torch.randn(6, 24)
    y = torch.zeros(6, dtype=torch.int64)
    return x.to(device), y.to(device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    optimizer.zero_grad(set_to_none=True)
    x, y = next_batch()
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = F.cross_entropy(out, y)
    loss = loss / 3
    scaler.scale(loss).backward()
    x, y = next_batch()
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = F.cross_entropy(out, y)
    loss = loss / 3
    scaler.scale(loss).backward()
    x, y = next_batch()
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = F.cross_entropy(out, y)
    loss = loss / 3
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
