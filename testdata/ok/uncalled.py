"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(24, 16, 3, padding=1, padding_mode="reflect")
        self.bn = nn.BatchNorm2d(16)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
        self.fc = nn.ModuleList([nn.Linear(64, 5), nn.Linear(64, 5)])


class ConvBn2(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1, padding_mode="reflect")
        self.bn = nn.BatchNorm2d(16)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3)
        self.aux = nn.Linear(784, 10)
        self.extra = ConvBn()
        self.spare = Head()
        self.seq = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), ConvBn2(), nn.LSTM(6, 3))
        self.norms = nn.ModuleList([nn.LayerNorm((4, 6)), nn.LayerNorm((4, 6))])
        self.group = nn.GroupNorm(2, 8)
        self.inst = nn.InstanceNorm1d(8, affine=True, track_running_stats=True)
        self.up = nn.ConvTranspose2d(4, 6, 2, stride=3, padding=4)
        self.table = nn.Embedding(30, 7)
        self.bag = nn.EmbeddingBag(30, 7)
        self.gru = nn.GRUCell(5, 7)
        self.mha = nn.MultiheadAttention(8, 2, kdim=6)
        self.layer = nn.TransformerDecoderLayer(8, 2, dim_feedforward=16)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.1, activation="relu", layer_norm_eps=1e-05, batch_first=False, norm_first=False, bias=True), num_layers=2)
        self.whole = nn.Transformer(8, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
        self.bi = nn.Bilinear(3, 4, 5)
        self.prelu = nn.PReLU(num_parameters=6)
        self.rms = nn.RMSNorm(9)
        self.drop = nn.Dropout(p=0.5)
        self.pool = nn.MaxPool2d(9)
        self.layers = nn.ModuleList([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)])

    def forward(self, x):
        x = self.stem(x)
        for module in self.layers:
            x = module(x)
        return x


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters())
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(16, 3, 32, 32)
    y = torch.zeros(16, dtype=torch.int64)
    return x.to(device), y.to(device)


def next_eval_batch():
    x = torch.randn(32, 3, 32, 32)
    y = torch.zeros(32, dtype=torch.int64)
    return x.to(device), y.to(device)


def evaluate(i):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            x, y = next_eval_batch()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(x)
                loss = criterion(out, y)
    model.train()


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
        loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
