"adapters by PEFT's keys: a training step, written by memplan export torch."
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
        self.emb = nn.Embedding(500, 32)
        self.blocks = nn.ModuleList([nn.Linear(32, 32), nn.Linear(32, 32)])
        self.q_proj = nn.Linear(32, 48, bias=False)
        self.head = nn.Linear(48, 10)

    def forward(self, tokens):
        x = self.emb(tokens)
        x = self.blocks[0](x)
        x = F.gelu(self.blocks[1](x))
        x = self.q_proj(x)
        x = torch.mean(x, (1,))
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


class LoraLayer(Adapter):
    """A layer with an adapter of rank r, as PEFT's LoraLayer."""

    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer)
        self.scaling = alpha / (math.sqrt(r) if rslora else r)
        self.lora_dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)
        result = result + self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling
        result = result.to(dtype)
        return result


class LoraLinear(LoraLayer):
    def __init__(self, base_layer, r, alpha, dropout, rslora=False, bias=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        in_features, out_features = features(base_layer)
        self.lora_A = nn.Linear(in_features, r, bias=False)
        self.lora_B = nn.Linear(r, out_features, bias=bias)


class DoraMagnitude(nn.Module):
    """The norms of a weight, which are trained."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)


class DoraLinear(LoraLinear):
    """A linear layer with DoRA, as PEFT's lora.Linear with use_dora."""

    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        self.transposed = not hasattr(base_layer, "in_features")

    def start(self):
        """Computes the magnitude, once the adapter is where the layer is."""
        lora_A, lora_B = self.lora_A.weight, self.lora_B.weight
        half = lora_A.dtype == torch.float16
        if half:
            lora_A, lora_B = lora_A.float(), lora_B.float()
        weight = self.base_weight()
        lora_weight = lora_B @ lora_A
        if half:
            lora_weight = lora_weight.half()
        self.lora_magnitude_vector = DoraMagnitude(self.weight_norm(weight, lora_weight))

    def base_weight(self):
        return self.base_layer.weight

    def weight_norm(self, weight, lora_weight):
        if self.transposed:
            weight = weight.T
        weight = weight + self.scaling * lora_weight
        norm = torch.linalg.norm(weight, dim=1).to(weight.dtype)
        return norm

    def lora_weight(self):
        x_eye = torch.eye(self.lora_A.weight.shape[1], device=self.lora_A.weight.device, dtype=self.lora_A.weight.dtype)
        lora_weight = self.lora_B(self.lora_A(x_eye)).T
        return lora_weight

    def dora(self, x, base_result):
        lora_weight = self.lora_weight()
        lora_weight = lora_weight.to(x.dtype)
        weight = self.base_weight().to(x.dtype)
        weight_norm = self.weight_norm(weight, lora_weight.detach())
        weight_norm = weight_norm.detach()
        mag_norm_scale = (self.lora_magnitude_vector.weight / weight_norm).view(1, -1)
        lora_result = self.lora_B(self.lora_A(x))
        if base_result is None:
            base_result = F.linear(x, weight.T if self.transposed else weight)
        elif self.base_layer.bias is not None:
            base_result = base_result - self.base_layer.bias
        result_dora = (mag_norm_scale - 1) * base_result + mag_norm_scale * lora_result * self.scaling
        return result_dora

    def add_dora(self, x, result):
        base_result = result
        if isinstance(self.lora_dropout, nn.Dropout) and self.training:
            x = self.lora_dropout(x)
            base_result = None
        result = result + self.dora(x, base_result)
        return result

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)
        result = self.add_dora(x, result)
        result = result.to(dtype)
        return result


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
model = Model().to(torch.bfloat16)
add_adapters(model, [
    (["blocks.0"], lambda layer: DoraLinear(layer, r=4, alpha=16.0, dropout=0.05)),
    (["q_proj"], lambda layer: DoraLinear(layer, r=8, alpha=16.0, dropout=0.05)),
], modules=["head"], bias="lora_only", dtype=torch.float32)
model.to(device)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
criterion = nn.CrossEntropyLoss()


def next_batch():
    tokens = torch.zeros(16, 24, dtype=torch.int64)
    label = torch.zeros(16, dtype=torch.int64)
    return tokens.to(device), label.to(device)


def step(i):
    tokens, label = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(tokens)
    loss = criterion(out, label)
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
