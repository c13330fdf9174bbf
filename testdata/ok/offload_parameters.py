"a model: a training step, written by memplan export torch."
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.proj = nn.Linear(32, 32)
        self.norm2 = nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q = q.view(6, 24, 4, 8).transpose(1, 2)
        k = k.view(6, 24, 4, 8).transpose(1, 2)
        v = v.view(6, 24, 4, 8).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(6, 24, 32)
        x = x + self.proj(y)
        x = F.dropout(x, 0.1, self.training)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(70, 32)
        self.wpe = nn.Embedding(24, 32)
        self.blocks = nn.ModuleList([Layer() for _ in range(3)])
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 70, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(24, device=device))
        for module in self.blocks:
            x = module(x)
        x = self.head(self.norm(x))
        return x


class Layer2(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.proj = nn.Linear(32, 32)
        self.norm2 = nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q = q.view(11, 24, 4, 8).transpose(1, 2)
        k = k.view(11, 24, 4, 8).transpose(1, 2)
        v = v.view(11, 24, 4, 8).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(11, 24, 32)
        x = x + self.proj(y)
        return x + self.mlp(self.norm2(x))


class Model2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(70, 32)
        self.wpe = nn.Embedding(24, 32)
        self.blocks = nn.ModuleList([Layer2() for _ in range(3)])
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 70, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(24, device=device))
        for module in self.blocks:
            x = module(x)
        x = self.head(self.norm(x))
        return x


device = torch.device("cuda")


def share(model, like):
    """Gives a model the parameters and buffers of one that is made like it. Modules without any may be in one only."""
    model._parameters, model._buffers = like._parameters, like._buffers
    for name in model._modules.keys() & like._modules.keys():
        share(model._modules[name], like._modules[name])
    return model


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
    return t.device, t.detach().cpu()


def unpack(packed):
    if len(packed) == 2:
        where, t = packed
        return t.to(where)
    p, *view = packed
    return p.detach().to(device).as_strided(*view)


model = Model()
offload(model)
optimizer = torch.optim.AdamW(model.parameters())
model_for_eval = share(Model2(), model)
offload(model_for_eval)


def next_batch():
    tokens = torch.zeros(6, 24, dtype=torch.int64)
    targets = torch.zeros(6, 24, dtype=torch.int64)
    return tokens.to(device), targets.to(device)


def next_eval_batch():
    tokens = torch.zeros(11, 24, dtype=torch.int64)
    targets = torch.zeros(11, 24, dtype=torch.int64)
    return tokens.to(device), targets.to(device)


def evaluate(i):
    model_for_eval.eval()
    with torch.no_grad():
        for _ in range(2):
            tokens, targets = next_eval_batch()
            out = model_for_eval(tokens)
            loss = F.cross_entropy(out.view(-1, 70), targets.view(-1))
    model_for_eval.train()


def step(i):
    tokens, targets = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = model(tokens)
        loss = F.cross_entropy(out.view(-1, 70), targets.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
