"rnn: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(24, 20, num_layers=2, batch_first=True, dropout=0.2, proj_size=7)
        self.decoder = nn.LSTM(24, 20, num_layers=2, batch_first=True, proj_size=7)
        self.both = nn.GRU(21, 11, bias=False, batch_first=True, bidirectional=True)
        self.plain = nn.RNN(22, 22, nonlinearity="relu")
        self.head = nn.Linear(42, 5)

    def forward(self, x):
        memory, state = self.encoder(x)
        out, (h, c) = self.decoder(x, state)
        again = self.decoder(x, [h, c])[0]
        wide, last = self.both(torch.cat([memory, out, again], 2))
        r = self.plain(wide)
        wide = r[0] + wide
        z = wide[:, -1] + torch.cat([last[-2], last[-1]], 1)
        z = torch.cat([z, state[1][-1]], 1)
        return self.head(z)


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters())


def next_batch():
    x = torch.randn(6, 9, 24)
    y = torch.zeros(6, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
