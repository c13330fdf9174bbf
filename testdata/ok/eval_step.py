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
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(30, 50)
    y = torch.zeros(30, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_eval_batch():
    x = torch.randn(30, 50)
    y = torch.zeros(30, dtype=torch.int64)
    return x.to(device), y.to(device)


def evaluate(i):
    model.eval()
    ema.eval()
    total = 0.0
    with torch.inference_mode():
        for _ in range(2):
            x, y = next_eval_batch()
            a = ema(x)
            b = model(x)
            difference = F.l1_loss(a, b)
            loss = criterion(a, y)
            total += difference
    model.train()
    ema.train()


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    ema.update_parameters(model)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
