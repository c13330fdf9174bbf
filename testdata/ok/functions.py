"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cos", torch.zeros(6, 4), persistent=False)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def heads(self, t):
        x = t.view(1, 6, 2, 4)
        x = x.transpose(1, 2)
        return x

    def rope(self, t, c):
        x = t * c
        return x

    def forward(self, x):
        q, k, v = self.qkv(x).split(8, 2)
        q = self.heads(q)
        k = self.heads(k)
        v = self.heads(v)
        q = self.rope(q, self.cos)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = o.transpose(1, 2).contiguous()
        x = x.view(1, 6, 8)
        x = self.out(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Attention()])

    def forward(self, x):
        x = self.layers[0](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    x = torch.randn(1, 6, 8)
    y = torch.randn(1, 6, 8)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
