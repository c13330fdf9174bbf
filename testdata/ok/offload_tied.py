"offload-tied: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Pred(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1000))
        self.dense = nn.Linear(200, 300)
        self.decoder = nn.Linear(300, 1000)
        self.decoder.bias = self.bias

    def forward(self, x):
        x = self.dense(x)
        x = self.decoder(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 200)
        self.pred = Pred()

    def forward(self, x):
        x = self.fc(x)
        x = F.relu(x)
        x = self.pred(x)
        return x


device = torch.device("cuda")


resident = {}  # where the copies on the GPU are, and of which parameters


def units(module):
    """The modules that own parameters; one of torch.nn uses those of its child, too."""
    if isinstance(module, nn.MultiheadAttention):
        yield module, list(module.modules())
        return
    if any(p is not None for p in module._parameters.values()):
        yield module, [module]
    for child in module.children():
        yield from units(child)


def offload(model):
    """Leaves the parameters on the CPU and copies those of a module to the GPU while it runs."""
    for m in model.modules():
        for name, b in m._buffers.items():
            m._buffers[name] = None if b is None else b.to(device)
    for module, owners in units(model):
        own = [(m, name, p) for m in owners for name, p in m._parameters.items() if p is not None]

        def before(module, args, own=own):
            for m, name, p in own:
                del m._parameters[name]
                setattr(m, name, p.to(device))
                resident[getattr(m, name).untyped_storage().data_ptr()] = p

        def after(module, args, output, own=own):
            for m, name, p in own:
                del resident[getattr(m, name).untyped_storage().data_ptr()]
                delattr(m, name)
                m._parameters[name] = p

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)


def pack(t):
    p = resident.get(t.untyped_storage().data_ptr())
    if p is not None:
        return p, t.size(), t.stride(), t.storage_offset()
    return t.device, t.detach()


def unpack(packed):
    if len(packed) == 2:
        where, t = packed
        return t.to(where)
    p, *view = packed
    return p.detach().to(device).as_strided(*view)


model = Model()
offload(model)
optimizer = torch.optim.AdamW(model.parameters())


def next_batch():
    x = torch.randn(128, 64)
    y = torch.zeros(128, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = model(x)
        loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
