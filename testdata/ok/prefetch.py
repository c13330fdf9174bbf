"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 8, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(64, 3, 64, 64)
    y = torch.zeros(64, dtype=torch.int64)
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


copy_stream = torch.cuda.Stream()


def prefetch():
    copy_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copy_stream):
        return next_batch()


upcoming = prefetch()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.current_stream().wait_stream(copy_stream)
    x, y = upcoming
    upcoming = prefetch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
