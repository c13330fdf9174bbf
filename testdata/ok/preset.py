"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class BlockManual(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.zeros(8, 8), persistent=False)
        self.ln1 = nn.LayerNorm(32)
        self.ln2 = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.proj = nn.Linear(32, 32)
        self.fc = nn.Linear(32, 128)
        self.out = nn.Linear(128, 32)
        self.drop = nn.Dropout(p=0.1)

    def split_heads(self, t):
        x = t.view(2, 8, 2, 16).transpose(1, 2)
        return x

    def attn(self, x):
        q, k, v = self.qkv(x).split(32, 2)
        q = self.split_heads(q)
        k = self.split_heads(k)
        v = self.split_heads(v)
        att = (q @ k.transpose(-2, -1)) * 0.25
        att = att.masked_fill(self.mask[:8, :8] == 0, -1e+09)
        att = self.drop(F.softmax(att, -1))
        y = att @ v
        return self.drop(self.proj(y.transpose(1, 2).contiguous().view(2, 8, 32)))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.drop(self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh")))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.wpe = nn.Embedding(8, 32)
        self.drop = nn.Dropout(p=0.1)
        self.blocks = nn.ModuleList([BlockManual(), BlockManual()])
        self.lnf = nn.LayerNorm(32)
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(8, device=device)))
        x = self.blocks[0](x)
        x = self.blocks[1](x)
        return self.head(self.lnf(x))


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)


def next_batch():
    ids = torch.zeros(2, 8, dtype=torch.int64)
    y = torch.zeros(2, 8, dtype=torch.int64)
    return ids.to(device), y.to(device)


def step(i):
    ids, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(ids)
        loss = F.cross_entropy(out.view(-1, 64), y.view(-1))
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
