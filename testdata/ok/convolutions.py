"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(6, 12, 3, padding="same", dilation=2),
            nn.Conv2d(12, 12, 3, padding=1, groups=12),
            nn.Conv2d(12, 16, 4, padding="same", groups=4),
            nn.Conv2d(16, 12, 2, stride=2, padding="valid", bias=False),
            nn.ConvTranspose2d(12, 12, 3, stride=2, padding=1, output_padding=1),
            nn.ConvTranspose1d(12, 5, 4, stride=3, groups=1),
        ])

    def forward(self, image):
        skip = self.layers[0](image)
        x = self.layers[1](skip)
        for module in self.layers[2:5]:
            x = module(x)
        x = x + skip
        x = torch.flatten(x, 2)
        x = self.layers[5](x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    image = torch.randn(3, 6, 24, 20)
    return image.to(device),


def step(i):
    image, = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(image)
    loss = torch.mean(out)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
