"fsdp: a training step, written by memplan export torch. Run it with torchrun --nproc-per-node 8."
import fnmatch
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 128)
        self.layers = nn.ModuleList([nn.ReLU()])
        self.down = nn.Linear(128, 64)

    def forward(self, x):
        x = self.norm(x)
        x = self.up(x)
        x = self.layers[0](x)
        x = self.down(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Mlp() for _ in range(3)])
        self.head = nn.Linear(64, 32)

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        x = self.head(x)
        return x


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = Model()
for name, p in model.named_parameters(remove_duplicate=False):
    if covers(["layers.0.norm"], name):
        p.requires_grad_(False)
del p  # it would keep a whole parameter
mesh = init_device_mesh("cuda", (8,))
sharding = dict(mesh=mesh, reshard_after_forward=4, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), offload_policy=CPUOffloadPolicy())
for name in ["layers.0", "layers.1", "layers.2"]:
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
criterion0 = nn.CrossEntropyLoss()
criterion1 = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(8, 64)
    y = torch.zeros(8, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    optimizer.zero_grad(set_to_none=True)
    model.set_requires_gradient_sync(False)
    x, y = next_batch()
    out = model(x)
    loss = criterion0(out, y)
    loss = loss / 2
    loss.backward()
    model.set_requires_gradient_sync(True)
    x, y = next_batch()
    out = model(x)
    loss = criterion1(out, y)
    loss = loss / 2
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
dist.destroy_process_group()
