"checkpoint: a training step, written by memplan export torch."
import functools
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class CheckpointedSequential(nn.Sequential):
    """nn.Sequential, some of whose modules are checkpointed."""

    def forward(self, input):
        input = self[0](input)
        input = self[1](input)
        input = torch.utils.checkpoint.checkpoint(self[2], input, use_reentrant=False)
        return input


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(48, 48)])

    def forward(self, x, factor):
        x = self.layers[0](x)
        x = x * factor
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Linear(32, 48),
            CheckpointedSequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)),
            Scale(),
            nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
            nn.Linear(64, 10),
        ])

    def gate(self, x):
        x = x * torch.sigmoid(x)
        return x

    def forward(self, x):
        x = self.layers[0](x)
        x = torch.utils.checkpoint.checkpoint(self.layers[1], x, use_reentrant=True)
        h = torch.utils.checkpoint.checkpoint(self.gate, x, context_fn=functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.sigmoid.default]), use_reentrant=False)
        factor = torch.ones(8, 48, device=device)
        x = torch.utils.checkpoint.checkpoint(functools.partial(self.layers[2], factor=factor), h, use_reentrant=False)
        x = torch.utils.checkpoint.checkpoint_sequential(self.layers[3], 2, x, use_reentrant=False)
        x = self.layers[4](x)
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
