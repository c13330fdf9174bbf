"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1)])

    def forward(self, image):
        x = self.layers[0](image)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())
criterion0 = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1, 1, 2], dtype=torch.float32), ignore_index=0).to(device)
criterion1 = nn.HuberLoss(delta=0.5)
criterion2 = nn.BCEWithLogitsLoss(reduction="sum")


def next_batch():
    image = torch.randn(3, 3, 12, 10)
    mask = torch.zeros(3, 12, 10, dtype=torch.int64)
    soft = torch.randn(3, 4, 12, 10)
    return image.to(device), mask.to(device), soft.to(device)


def step(i):
    image, mask, soft = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(image)
    hard = criterion0(out, mask)
    mixed = F.cross_entropy(out, soft, label_smoothing=0.1)
    huber = criterion1(out, soft)
    bce = criterion2(out, soft)
    kl = F.kl_div(F.log_softmax(out, 1), soft, reduction="batchmean")
    l1 = F.l1_loss(out, soft)
    loss = hard + (mixed + (huber + (bce + (kl + l1))))
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
