"param-groups: a training step, written by memplan export torch."
import fnmatch
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 96)
        self.norm = nn.LayerNorm(96)
        self.fc = nn.Linear(96, 200)
        self.layers = nn.ModuleList([nn.GELU()])
        self.head = nn.Linear(200, 500)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x)
        x = self.fc(x)
        x = self.layers[0](x)
        x = self.head(x)
        x = torch.flatten(x, 0, 1)
        return x


device = torch.device("cuda")
model = Model().to(device)
for name, p in model.named_parameters(remove_duplicate=False):
    if covers(["embed"], name):
        p.requires_grad_(False)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*.bias", "*norm*"], name) and not covers(["head"], name) and p.requires_grad]},
    {"params": [p for name, p in model.named_parameters() if covers(["*.bias", "*norm*"], name) and p.requires_grad], "weight_decay": 0.0},
    {"params": [p for name, p in model.named_parameters() if covers(["head"], name) and not covers(["*.bias", "*norm*"], name) and p.requires_grad], "lr": 0.001, "foreach": False},
], lr=0.0003, weight_decay=0.1)


def next_batch():
    tokens = torch.zeros(6, 64, dtype=torch.int64)
    labels = torch.zeros(6, 64, dtype=torch.int64)
    return tokens.to(device), labels.to(device)


def step(i):
    tokens, labels = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(tokens)
        loss = F.cross_entropy(out, torch.flatten(labels))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
