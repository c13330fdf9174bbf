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
            nn.Conv2d(8, 8, (3, 1), stride=2, padding=(1, 0)),
            nn.BatchNorm2d(8),
            nn.GroupNorm(2, 8),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.LayerNorm(32),
            nn.LayerNorm(32),
            nn.Linear(32, 10),
        ])

    def forward(self, image):
        x = self.layers[0](image)
        for module in self.layers[1:9]:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()


def next_batch():
    image = torch.randn(2, 3, 16, 16)
    label = torch.zeros(2, dtype=torch.int64)
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
