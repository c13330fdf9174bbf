"autograd-functions: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Gelu(torch.autograd.Function):
    @staticmethod
    def gelu_forward(x):
        tanh_out = torch.tanh((x * 0.8) * (((x * 0.04) * x) + 1))
        return (x * 0.5) * (tanh_out + 1)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Gelu.gelu_forward(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        tanh_out = torch.tanh((x * 0.8) * (((x * 0.04) * x) + 1))
        out = tanh_out * grad
        return out


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        t = torch.sigmoid(x)
        a = x * w
        b = a + t
        ctx.save_for_backward(a, w)
        ctx.t = t
        return a, b

    @staticmethod
    def backward(ctx, grad_a, grad_b):
        a, w = ctx.saved_tensors
        t = ctx.t
        r = grad_a * a
        s = (grad_b * t) * 5
        grad_w = torch.sum(r, (0, 1))
        return r + s, grad_w


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(128))
        self.layers = nn.ModuleList([nn.Linear(128, 128)])

    def forward(self, x):
        h = self.layers[0](x)
        h = Gelu.apply(h)
        p, q = Scale.apply(h, self.w)
        return p + (q * 2)


class Cell2(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(128))
        self.layers = nn.ModuleList([nn.Linear(128, 128)])

    def forward(self, x):
        h = self.layers[0](x)
        h = Gelu.apply(h)
        p, q = Scale.apply(h, self.w)
        return q


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Cell(), Cell2(), nn.Linear(128, 10)])

    def forward(self, x):
        x = self.layers[0](x)
        x = self.layers[1](x)
        x = torch.mean(x, (1,))
        x = self.layers[2](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters())


def next_batch():
    x = torch.randn(16, 64, 128)
    y = torch.zeros(16, dtype=torch.int64)
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
