"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Gen(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 40)])

    def forward(self, z):
        x = self.layers[0](z)
        x = self.layers[1](x)
        x = self.layers[2](x)
        return x


class Dis(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Linear(40, 50),
            nn.LeakyReLU(negative_slope=0.2),
            nn.Dropout(p=0.3),
            nn.Linear(50, 1),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(40, 30), nn.BatchNorm1d(30), nn.Dropout(p=0.5), nn.Linear(30, 1)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")


def bring_back(optimizer, params, copies, take):
    """Steps an optimizer of copies on the CPU; take: with the gradients on the GPU."""
    if take:
        for p, c in zip(params, copies):
            c.grad = None
            c.grad = None if p.grad is None else p.grad.cpu()
    optimizer.step()
    with torch.no_grad():
        for p, c in zip(params, copies):
            p.copy_(c)


gen = Gen().to(device)
dis = Dis().to(device)
judge = Judge().to(device)
judge.eval()
og_params = list(gen.parameters())
og_copies = [p.detach().cpu().requires_grad_() for p in og_params]
og = torch.optim.Adam(og_copies, lr=0.001)
od_params = list(dis.parameters())
od_copies = [p.detach().cpu().requires_grad_() for p in od_params]
od = torch.optim.AdamW(od_copies)
ema = torch.optim.swa_utils.AveragedModel(gen, device="cpu", multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))


def next_batch():
    z = torch.randn(16, 20)
    x = torch.randn(16, 40)
    return z.to(device), x.to(device)


def next_eval_batch():
    z = torch.randn(9, 20)
    x = torch.randn(9, 40)
    return z.to(device), x.to(device)


def evaluate(i):
    gen.eval()
    dis.eval()
    with torch.no_grad():
        for _ in range(2):
            z, x = next_eval_batch()
            fake = gen(z)
            s = dis(fake)
    gen.train()
    dis.train()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    z, x = next_batch()
    od.zero_grad(set_to_none=True)
    dis.zero_grad(set_to_none=True)
    fake = gen(z)
    still = fake.detach()
    a = dis(still)
    b = dis(x)
    c = judge(fake)
    dl = torch.mean(a - b)
    dl.backward()
    bring_back(od, od_params, od_copies, True)
    og.zero_grad(set_to_none=True)
    gen.zero_grad(set_to_none=True)
    gl = torch.mean(c)
    gl.backward()
    bring_back(og, og_params, og_copies, True)
    ema.update_parameters(gen)
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
