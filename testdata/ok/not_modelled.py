"a model: a training step, written by memplan export torch. Run it with torchrun --nproc-per-node 2."
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):
        x = self.layers[0](x)
        return x


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
model = DistributedDataParallel(model, device_ids=[device.index])


def next_batch():
    x = torch.randn(1, 4)
    y = torch.randn(1, 4)
    return x.to(device), y.to(device)


batch = next_batch()


def step(i):
    optimizer.zero_grad(set_to_none=True)
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    x, y = batch
    out = model(x)
    loss = F.mse_loss(out, y)
    loss = loss / 4
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
dist.destroy_process_group()
