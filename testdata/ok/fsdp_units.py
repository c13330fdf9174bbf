"fsdp-units: a training step, written by memplan export torch. Run it with torchrun --nproc-per-node 8."
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


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
        self.table = nn.Embedding(100, 64)
        self.layers = nn.ModuleList([Mlp() for _ in range(3)])
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 100, bias=False)

    def forward(self, x):
        x = self.table(x)
        for module in self.layers:
            x = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)
        x = self.norm(x)
        x = self.head(x)
        return x


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = Model()
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
sharding = dict(mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))
for name in ["layers.0", "layers.1"]:
    fully_shard(model.get_submodule(name), **dict(sharding, reshard_after_forward=2))
for name in ["layers.2", "table"]:
    fully_shard(model.get_submodule(name), **sharding)
fully_shard([model.get_submodule(name) for name in ["norm", "head"]], **dict(sharding, reshard_after_forward=False))
fully_shard(model, **sharding)
optimizer = torch.optim.AdamW(model.parameters())


def next_batch():
    x = torch.zeros(8, 32, dtype=torch.int64)
    y = torch.zeros(8, 32, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out.view(-1, 100), y.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
dist.destroy_process_group()
