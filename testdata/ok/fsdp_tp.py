"fsdp_tp: a training step, written by memplan export torch. Run it with torchrun --nproc-per-node 16."
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(96, 32)
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.head = nn.Linear(32, 96, bias=False)

    def forward(self, x):
        x = self.table(x)
        h = self.norm(x)
        h = self.up(h)
        h = F.gelu(h)
        h = self.down(h)
        x = x + h
        x = self.head(x)
        x = x.transpose(1, 2)
        return x


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
with torch.device("meta"):
    model = Model()
mesh = init_device_mesh("cuda", (2, 4, 2), mesh_dim_names=("replicate", "shard", "tp"))
plan = {
    "table": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(use_local_output=True),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
for name, style in plan.items():
    parallelize_module(model.get_submodule(name), mesh["tp"], style)
sharding = dict(mesh=mesh["replicate", "shard"], mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
fully_shard([model.get_submodule(name) for name in ["norm", "up"]], **sharding)
for name in ["down"]:
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model, **sharding)
model.to_empty(device=device)
optimizer = torch.optim.AdamW(model.parameters())
criterion0 = nn.CrossEntropyLoss()
criterion1 = nn.CrossEntropyLoss()


def next_batch():
    x = torch.zeros(8, 64, dtype=torch.int64)
    label = torch.zeros(8, 64, dtype=torch.int64)
    return x.to(device), label.to(device)


def step(i):
    optimizer.zero_grad(set_to_none=True)
    model.set_requires_gradient_sync(False)
    x, label = next_batch()
    out = model(x)
    loss = criterion0(out, label)
    loss = loss / 2
    loss.backward()
    model.set_requires_gradient_sync(True)
    x, label = next_batch()
    out = model(x)
    loss = criterion1(out, label)
    loss = loss / 2
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
dist.destroy_process_group()
