"packages: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    from lion_pytorch import Lion
except ImportError:
    class Lion(torch.optim.Optimizer):
        """What lion_pytorch.Lion does, one parameter at a time."""

        def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, decoupled_weight_decay=False):
            super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
            self.decay_scale = 1 / lr if decoupled_weight_decay else 1.0

        @staticmethod
        def update(p, moment, lr, betas, decay):
            p.data.mul_(1 - lr * decay)
            sign = moment.clone().mul_(betas[0]).add(p.grad, alpha=1 - betas[0]).sign_()
            p.add_(sign, alpha=-lr)
            moment.mul_(betas[1]).add_(p.grad, alpha=1 - betas[1])

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if not state:
                        state["exp_avg"] = torch.zeros_like(p)
                    self.update(p, state["exp_avg"], group["lr"], group["betas"], group["weight_decay"] * self.decay_scale)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(40, 120), nn.Tanh(), nn.Linear(120, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = Lion(model.parameters(), lr=0.0001, weight_decay=0.1)
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(16, 40)
    y = torch.zeros(16, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
