"several-names: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.LSTM(59, 65, bias=False, batch_first=True), nn.Linear(65, 26)])

    def forward(self, data, h, c):
        out, (h, c) = self.layers[0](data, [h, c])
        out = self.layers[1](out[:, -1])
        return out, h, c


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), weight_decay=0.01, foreach=False)


def next_batch():
    data = torch.randn(28, 27, 59)
    target = torch.randn(28, 26)
    return data.pin_memory().to(device, non_blocking=True), target.pin_memory().to(device, non_blocking=True)


copy_stream = torch.cuda.Stream()


def prefetch():
    copy_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copy_stream):
        return next_batch()


upcoming = prefetch()


torch.cuda.current_stream().wait_stream(copy_stream)
next_data, next_target = upcoming
upcoming = prefetch()
h = torch.randn(1, 28, 65, device=device)
c = torch.zeros(1, 28, 65, device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    data, target = next_data, next_target
    torch.cuda.current_stream().wait_stream(copy_stream)
    next_data, next_target = upcoming
    upcoming = prefetch()
    optimizer.zero_grad(set_to_none=True)
    out, h, c = model(data, h, c)
    h, c = h.detach(), c.detach()
    loss = F.mse_loss(out, target)
    loss.backward()
    optimizer.step()
    if i % 2 == 0:
        model.eval()
        with torch.no_grad():
            val, _, _ = model(data, h, c)
        model.train()
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
