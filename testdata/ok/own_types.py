"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(20))
        self.shift = nn.Parameter(torch.zeros(20))
        self.register_buffer("mask", torch.zeros(20))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.layers = nn.ModuleList([nn.Linear(30, 20), nn.LayerNorm(20)])

    def forward(self, x):
        x = self.layers[0](x)
        x = x * self.scale
        x = x + self.shift.type_as(x)
        x = x * self.mask.type_as(x)
        x = self.layers[1](x)
        return x


class Part2(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(20))
        self.shift = nn.Parameter(torch.zeros(20))
        self.register_buffer("mask", torch.zeros(20))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.layers = nn.ModuleList([nn.Linear(20, 20), nn.LayerNorm(20)])

    def forward(self, x):
        x = self.layers[0](x)
        x = x * self.scale
        x = x + self.shift.type_as(x)
        x = x * self.mask.type_as(x)
        x = self.layers[1](x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Linear(40, 30),
            nn.LayerNorm(30),
            Part(),
            Part2(),
            nn.LSTM(20, 8),
            nn.Sequential(nn.Linear(8, 9), nn.BatchNorm1d(9)),
        ])

    def forward(self, x):
        x = self.layers[0](x)
        x = x.to(torch.float32)
        x = self.layers[1](x)
        x = self.layers[2](x)
        x = x.to(torch.bfloat16)
        x = self.layers[3](x)
        x = self.layers[4](x)[0]
        x = torch.mean(x, (1,))
        x = x.to(torch.float32)
        x = self.layers[5](x)
        return x


device = torch.device("cuda")


def typed(model, dtype, own):
    """Converts a model on the CPU; own: the tensors that have another type."""
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        if t.is_floating_point():
            t.data = t.data.to(own.get(name, dtype))
    return model


model = typed(Model(), torch.bfloat16, {
    "layers.1.weight": torch.float32,
    "layers.1.bias": torch.float32,
    "layers.2.scale": torch.float32,
    "layers.2.shift": torch.float32,
    "layers.2.mask": torch.float16,
    "layers.2.layers.0.weight": torch.float32,
    "layers.2.layers.0.bias": torch.float32,
    "layers.2.layers.1.weight": torch.float32,
    "layers.2.layers.1.bias": torch.float32,
    "layers.3.shift": torch.float32,
    "layers.3.mask": torch.float16,
    "layers.5.0.weight": torch.float32,
    "layers.5.0.bias": torch.float32,
    "layers.5.1.weight": torch.float32,
    "layers.5.1.bias": torch.float32,
    "layers.5.1.running_mean": torch.float32,
    "layers.5.1.running_var": torch.float32,
})
model.to(device)
optimizer = torch.optim.Adam(model.parameters())
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))


def next_batch():
    x = torch.randn(12, 7, 40, dtype=torch.bfloat16)
    y = torch.zeros(12, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ema.update_parameters(model)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
