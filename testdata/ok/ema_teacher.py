"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 12)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))


def next_batch():
    x = torch.randn(30, 50)
    y = torch.zeros(30, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_eval_batch():
    x = torch.randn(30, 50)
    y = torch.zeros(30, dtype=torch.int64)
    return x.to(device), y.to(device)


kept = []
outs = []


def evaluate(i):
    model.eval()
    ema.eval()
    total = 0.0
    preds = []
    with torch.no_grad():
        for _ in range(3):
            x, y = next_eval_batch()
            a = ema(x)
            b = model(x)
            d = F.l1_loss(a, b)
            best = torch.argmax(a, 1)
            total += d
            preds.append(best)
    model.train()
    ema.train()


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        wanted = ema(x)
    out = model(x)
    soft = F.mse_loss(out, wanted)
    loss = F.cross_entropy(out, y)
    loss = loss + soft
    loss.backward()
    optimizer.step()
    if i % 2 == 0:
        ema.update_parameters(model)
    kept.append(loss)
    if i % 2 == 0:
        outs.append(out.cpu())


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    if i % 2 == 0:
        evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
