"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(p=0.2)
        self.encoder = nn.Embedding(500, 64)
        self.rnn = nn.LSTM(64, 64, num_layers=2, batch_first=True, dropout=0.2)
        self.decoder = nn.Linear(64, 500)

    def forward(self, data, h, c):
        emb = self.drop(self.encoder(data))
        output, (h, c) = self.rnn(emb, [h, c])
        output = self.drop(output)
        decoded = self.decoder(output)
        decoded = decoded.view(-1, 500)
        return F.log_softmax(decoded, 1), h, c


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    data = torch.zeros(20, 35, dtype=torch.int64)
    targets = torch.zeros(20, 35, dtype=torch.int64)
    return data.to(device), targets.to(device)


h = torch.zeros(2, 20, 64, device=device)
c = torch.zeros(2, 20, 64, device=device)


def step(i):
    global h, c
    data, targets = next_batch()
    optimizer.zero_grad(set_to_none=True)
    h, c = h.detach(), c.detach()
    output, h, c = model(data, h, c)
    loss = F.nll_loss(output, targets.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
