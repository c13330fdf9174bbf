"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32), nn.Linear(512, 10)])

    def forward(self, a, b):
        h = self.layers[0](a)
        h = F.softmax(h, 1)
        h = F.softmax(h + a, -1)
        h = F.softmax(torch.tanh(h), -1)
        t = h.transpose(1, -1)
        t = t.transpose(1, 2)
        c = torch.cat([h, t], -1)
        c = torch.cat([h] + [t], -1)
        s = torch.stack([b, t], 1)
        cs = c.chunk(2, -1)
        c = torch.cat(cs, -1)
        c0 = torch.cat([*cs])
        c0 = torch.cat(cs)
        mask = h > 0.0
        w = torch.where(mask, h, t)
        w = torch.where(h > 0, h, 0.0)
        w = h.masked_fill(mask, 0.0)
        w = h.masked_fill(mask, -1e+09)
        w = h + (t * 2)
        w = w + (-1)
        w = 1 - w
        w = torch.pow(w, 2)
        w = w * 2
        w = torch.clamp(w, -1, 1)
        w = torch.clamp(w, 0)
        v = w.to(torch.float16)
        w = v.to(torch.float32)
        w = w.permute(0, 2, 1)
        w = w.permute(0, 2, 1)
        w = w.view(2, -1)
        w = w.reshape(-1, 16, 32)
        w = torch.flip(w, (0, 1))
        w = torch.flip(w, (0, 1))
        w = torch.roll(w, (1,), (2,))
        r = torch.sum(w, (1, 2), True)
        r = torch.sum(w, (1,))
        r = torch.mean(w)
        w = torch.tanh(w - r)
        w = F.dropout(w, 0.1, self.training)
        w = F.dropout(w, training=self.training)
        w = F.layer_norm(w, (32,))
        p, q = w.split(8, 1)
        p, q = w.split((4, 12), 1)
        g = w[:, -1]
        g, i = torch.topk(g, 4, -1)
        g2 = torch.gather(g, 1, i)
        g2 = torch.gather(g, 1, i)
        g2 = torch.gather(g, 1, i)
        e = torch.einsum("bij,bkj->bik", [w, h])
        z = torch.full((2, 3), 1.0, device=device)
        z = w.new_zeros((2, 3))
        z = torch.arange(0, 4, 2, device=device)
        z = torch.zeros(2, 3, device=device)
        g3 = torch.repeat_interleave(g, 2, 1)
        mx, ix = torch.max(w, -1)
        w = torch.flatten(w, 1)
        x = self.layers[1](w)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    a = torch.randn(2, 16, 32)
    b = torch.randn(2, 16, 32)
    y = torch.zeros(2, dtype=torch.int64)
    return a.to(device), b.to(device), y.to(device)


def step(i):
    a, b, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(a, b)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
