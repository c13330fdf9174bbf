"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    from torchao.optim import AdamW4bit
except ImportError:
    class AdamW4bit(torch.optim.Optimizer):
        """The memory of torchao.optim.AdamW4bit, whose compiled steps change parameters and states in place; nothing is computed."""

        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, block_size=128, bf16_stochastic_round=False):
            super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
            self.block, self.rounds = block_size, bf16_stochastic_round

        def quantized(self, p):
            return p.numel() >= 4096 and p.numel() % self.block == 0

        def zeros(self, p):
            if not self.quantized(p):
                return [torch.zeros_like(p)]
            out = [torch.zeros(p.numel() // 2, dtype=torch.uint8, device=p.device), torch.zeros(p.numel() // self.block, device=p.device)]
            return out + [torch.zeros(16).to(p.device)] if 16 else out

        def scales(self, p):
            rows = [p.shape[i:].numel() for i in range(1, p.dim())]
            small = "AdamW4bit" == "AdamW4bit"
            return "AdamW4bit" == "AdamWFp8" or any(n > self.block and n % self.block or small and n < self.block and self.block % n for n in rows)

        @torch.no_grad()
        def step(self):
            for p in (p for g in self.param_groups for p in g["params"] if p.grad is not None):
                state, p = self.state[p], p.to_local() if hasattr(p, "to_local") else p  # of a DTensor
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = self.zeros(p), self.zeros(p)
                buffer = lambda n, dtype=torch.float32: torch.empty(n, dtype=dtype, device=p.device)
                n, quantized = p.numel(), self.quantized(p)
                scales = [buffer(n // self.block) for _ in range(2)] if quantized and self.scales(p) else []
                seed = buffer(1, torch.int64) if self.rounds and p.dtype is torch.bfloat16 else None
                codes = [(buffer(n), buffer(n, torch.int64)) for _ in range(2)] if quantized and "AdamW4bit" == "AdamW4bit" else []
                del seed
                while scales or codes:
                    moment, code = codes.pop(0) if codes else (None, None)
                    if scales:
                        del code
                        del scales[0]
                        del moment
                    else:
                        del moment, code


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 384), nn.ReLU(), nn.Linear(384, 256), nn.ReLU(), nn.Linear(256, 10)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device=device, dtype=torch.bfloat16)
optimizer = AdamW4bit(model.parameters(), lr=0.001, block_size=256, bf16_stochastic_round=True)
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(8, 512, dtype=torch.bfloat16)
    y = torch.zeros(8, dtype=torch.int64)
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
