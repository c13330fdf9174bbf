"(IA)3: a training step, written by memplan export torch."
import copy
import fnmatch
import json
import math

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
        self.k_proj = nn.Linear(24, 48)
        self.down_proj = nn.Linear(48, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.gelu(self.k_proj(x))
        x = F.gelu(self.down_proj(x))
        x = self.head(x)
        return x


class Adapter(nn.Module):
    """A module around a layer, as PEFT's BaseTunerLayer."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer

    @property
    def weight(self):
        return self.base_layer.weight

    @property
    def bias(self):
        return self.base_layer.bias


def features(layer):
    """The numbers of input and output features of a linear layer."""
    if hasattr(layer, "in_features"):
        return layer.in_features, layer.out_features
    return tuple(layer.weight.shape)  # Conv1D of transformers


class IA3Linear(Adapter):
    """A linear layer with (IA)3, whose output is scaled."""

    def __init__(self, base_layer):
        super().__init__(base_layer)
        self.ia3_l = nn.Parameter(torch.ones(features(base_layer)[1], 1))

    def forward(self, x):
        ia3_scaling = 1 * self.ia3_l.flatten()
        result = self.base_layer(x)
        result_dtype = result.dtype
        result = (result * ia3_scaling).to(result_dtype)
        return result


class IA3Feedforward(Adapter):
    """A linear layer with (IA)3, whose input is scaled."""

    def __init__(self, base_layer):
        super().__init__(base_layer)
        self.ia3_l = nn.Parameter(torch.ones(1, features(base_layer)[0]))

    def forward(self, x):
        previous_dtype = x.dtype
        ia3_scaling = 1 * self.ia3_l.flatten()
        x = x.to(self.ia3_l.dtype)
        interm = (x * ia3_scaling).to(previous_dtype)
        return self.base_layer(interm)


class ModulesToSave(nn.Module):
    """A module of which a copy is trained, as PEFT's ModulesToSaveWrapper."""

    def __init__(self, module):
        super().__init__()
        self.original_module = module
        self.modules_to_save = copy.deepcopy(module).requires_grad_(True)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("modules_to_save"), name)

    def forward(self, *args):
        return self.modules_to_save(*args)


def add_adapters(model, layers, parameters=(), modules=(), bias="none", dtype=None, lower=False):
    """Freezes a model and puts adapters around layers, as PEFT's get_peft_model."""
    def replace(path, new):
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)

    found = [(path, m, make) for group in (layers, parameters) for path, m in model.named_modules() for patterns, make in group if any(fnmatch.fnmatchcase(path, p) for p in patterns)]
    saved = [(path, m) for path, m in model.named_modules() if path and any(fnmatch.fnmatchcase(path, p) for p in modules)]
    for name, p in model.named_parameters():
        p.requires_grad_(bias == "all" and "bias" in name)
    added = []
    for path, layer, make in found:
        own = {id(p) for p in layer.parameters()}
        adapter = make(layer)
        if bias not in ("none", "all") and getattr(layer, "bias", None) is not None:
            layer.bias.requires_grad_(True)
        weight = layer.weight if hasattr(layer, "weight") else next(layer.parameters())
        first = getattr(layer, "compute_dtype", weight.dtype)
        for p in adapter.parameters():
            if id(p) not in own:
                p.data = p.data.to(weight.device, dtype=first if first.is_floating_point else p.dtype)
        for name, b in adapter._buffers.items():
            adapter._buffers[name] = b.to(weight.device)
        if hasattr(adapter, "start"):
            adapter.start()
        added += [p for p in adapter.parameters() if id(p) not in own]
        replace(path, adapter)
    for path, module in saved:
        replace(path, ModulesToSave(module))
    added = {id(p) for p in added}
    for p in model.parameters():
        if id(p) in added and dtype is not None and p.dtype != dtype:
            p.data = p.data.to(dtype)
    for p in model.parameters() if lower else []:
        if id(p) in added:
            p.data = p.data.to(torch.bfloat16)


device = torch.device("cuda")
model = Model()
add_adapters(model, [
    (["k_proj"], lambda layer: IA3Linear(layer)),
    (["down_proj"], lambda layer: IA3Feedforward(layer)),
], modules=["head"], dtype=torch.float32)
model.to(device)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
criterion = nn.CrossEntropyLoss()


def next_batch():
    x = torch.randn(16, 24)
    label = torch.zeros(16, dtype=torch.int64)
    return x.to(device), label.to(device)


def step(i):
    x, label = next_batch()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
        loss = criterion(out, label)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
