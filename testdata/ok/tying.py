"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(32, 8)
        self.head = nn.Linear(8, 32, bias=False)
        self.free = nn.Linear(8, 8)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids)
        x = self.free(x)
        x = self.head(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    ids = torch.zeros(1, 6, dtype=torch.int64)
    y = torch.zeros(1, 6, dtype=torch.int64)
    return ids.to(device), y.to(device)


def step(i):
    ids, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(ids)
    loss = F.cross_entropy(out.view(-1, 32), y.view(-1))
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
