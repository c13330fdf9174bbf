"every key of train that is modelled: a training step, written by memplan export torch."
import json
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic cuBLAS needs it before the first use

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):
        x = self.layers[0](x)
        return x


device = torch.device("cuda")
torch.use_deterministic_algorithms(True)
model = Model().to(device=device, dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, betas=(0.9, 0.95), foreach=False)
criterion = nn.MSELoss()


def next_batch():
    x = torch.randn(8, 4, dtype=torch.bfloat16)
    y = torch.randn(8, 4, dtype=torch.bfloat16)
    return x.to(device), y.to(device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    x, y = next_batch()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if i % 2 == 0:
        torch.cuda.empty_cache()
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
