"freeze: a training step, written by memplan export torch."
import fnmatch
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.ModuleList([nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 32, 3)])
        self.layers = nn.ModuleList([nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()])
        self.neck = nn.Linear(32, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, image):
        x = self.backbone[0](image)
        x = self.backbone[1](x)
        x = self.layers[0](x)
        x = self.backbone[2](x)
        x = self.layers[1](x)
        x = self.layers[2](x)
        x = self.neck(x)
        x = self.head(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
for name, p in model.named_parameters(remove_duplicate=False):
    if covers(["backbone", "n?ck.weight"], name) and not covers(["backbone.1", "*.bias"], name):
        p.requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
criterion = nn.CrossEntropyLoss()


def next_batch():
    image = torch.randn(32, 3, 32, 32)
    label = torch.zeros(32, dtype=torch.int64)
    return image.to(device), label.to(device)


def step(i):
    image, label = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(image)
    loss = criterion(out, label)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
