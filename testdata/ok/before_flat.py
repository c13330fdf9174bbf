"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.GRU(24, 30, batch_first=True), nn.Linear(30, 7)])

    def forward(self, x, state):
        out, state = self.layers[0](x, state)
        out = self.layers[1](out[:, -1])
        return out, state


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())


def next_batch():
    x = torch.randn(16, 40, 24)
    y = torch.randn(16, 7)
    return x.to(device), y.to(device)


x, y = next_batch()
with torch.autocast("cuda", dtype=torch.bfloat16):
    state = torch.zeros(1, 16, 30, device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out, state = model(x, state)
        loss = F.mse_loss(out, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        state = state.detach()
    x, y = next_batch()
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
