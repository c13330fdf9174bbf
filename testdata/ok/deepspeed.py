"deepspeed: a training step, written by memplan export torch. Run it with torchrun --nproc-per-node 4."
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import deepspeed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 100)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = Model().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
model, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2, "reduce_bucket_size": 20000, "overlap_comm": True}, "bf16": {"enabled": True}}, dist_init_required=False)


def next_batch():
    x = torch.randn(4, 64, dtype=torch.bfloat16)
    y = torch.zeros(4, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    out = model(x)
    loss = F.cross_entropy(out, y)
    model.backward(loss)
    model.step()
    x, y = next_batch()
    out = model(x)
    loss = F.cross_entropy(out, y)
    model.backward(loss)
    model.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
dist.destroy_process_group()
