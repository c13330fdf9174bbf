"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(3, 8, 3, stride=1, padding=1),
            nn.BatchNorm2d(8, eps=0.001),
            nn.GroupNorm(2, 8, eps=1e-06),
            nn.MaxPool2d(2, stride=2),
            nn.AdaptiveAvgPool2d((2, 2)),
            nn.AdaptiveAvgPool2d((2, 2)),
            nn.Flatten(),
            nn.LayerNorm(32),
            nn.LayerNorm(32),
            nn.LayerNorm(32, eps=1e-06),
            nn.Dropout(p=0.1),
            nn.Linear(32, 64, bias=False),
            nn.Unflatten(1, (4, 16)),
            nn.LSTM(16, 32, num_layers=2),
            nn.TransformerEncoderLayer(32, 4, dim_feedforward=64),
            nn.MultiheadAttention(32, 4, dropout=0.1),
            nn.Linear(32, 10),
        ])

    def forward(self, image):
        x = self.layers[0](image)
        for module in self.layers[1:13]:
            x = module(x)
        x = self.layers[13](x)[0]
        x = self.layers[14](x)
        x = self.layers[15](x, x, x)[0]
        x = torch.mean(x, (1,))
        x = self.layers[16](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
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
