"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Dropout(p=0.3),
            nn.Flatten(),
            nn.Linear(7744, 10),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))


def next_batch():
    x = torch.randn(32, 3, 24, 24)
    y = torch.zeros(32, dtype=torch.int64)
    return x.to(device), y.to(device)


val_x, val_y = next_batch()
model.eval()
with torch.no_grad():
    first = model(val_x)
model.train()
del first


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    ema.update_parameters(model)
    if i % 2 == 0:
        model.eval()
        ema.eval()
        with torch.no_grad():
            logits = model(val_x)
            val_loss = F.cross_entropy(logits, val_y)
            logits = ema(val_x)
        ema.train()
        model.train()
    again = model(val_x)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
