"int8: a training step, written by memplan export torch."
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
        self.up = nn.Linear(64, 256)
        self.layers = nn.ModuleList([nn.ReLU()])
        self.down = nn.Linear(256, 64)
        self.head = nn.Linear(64, 100)

    def forward(self, x):
        x = self.up(x)
        x = self.layers[0](x)
        x = self.down(x)
        x = self.head(x)
        x = x.view(-1, 100)
        return x


# What follows stands for bitsandbytes, whose kernels write into tensors like these.


def bnb_linear(model, kind, modules, excluded, **options):
    """Puts quantized layers in the place of linear ones; .to(device) quantizes them."""
    def fits(patterns, path):
        return any(fnmatch.fnmatchcase(path, p) for p in patterns)

    for path, layer in list(model.named_modules()):
        if isinstance(layer, LINEAR) and fits(modules, path) and not fits(excluded, path):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, kind(layer, **options))


class QuantizedLinear(nn.Linear):
    def __init__(self, layer):
        nn.Module.__init__(self)
        self.weight = nn.Parameter(layer.weight.data, requires_grad=False)
        self.out_features, self.in_features = layer.weight.shape if isinstance(layer, nn.Linear) else layer.weight.shape[::-1]
        self.bias = layer.bias
        self.transposed = not isinstance(layer, nn.Linear)
        self.loaded = False

    def _apply(self, fn, recurse=True):
        if not self.loaded:
            self.load(fn)
            self.loaded = True
        return super()._apply(fn, recurse)


def int8_vectorwise_quant(a, threshold=0.0):
    return int8_rows(a, threshold)  # the operator behind it has a frame of its own


def int8_rows(a, threshold):
    row_stats = torch.empty(a.shape[0], dtype=torch.float32, device=a.device)
    out_row = torch.empty(a.shape, dtype=torch.int8, device=a.device)
    if threshold > 0.0:
        outliers = a.abs() >= threshold
        outliers.any()
        columns = torch.argwhere(outliers.any(dim=0)).view(-1)
        if a.shape[0] > 1:
            out_row[:, columns] = 0
    return out_row, row_stats


def int8_linear_matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.int32, device=a.device)
    if a.shape[1] % 4 != 0:
        result = torch.matmul(a.float(), b.float().t()).to(torch.int32)
        return out.copy_(result)
    return out


def int8_mm_dequant(a, dtype, bias):
    out = torch.empty_like(a, dtype=torch.float16)
    if bias is not None and bias.dtype != torch.float16:
        out.add_(bias)
    return out.to(dtype)


def int8_scaled_mm(a, b, bias, dtype):
    out_i32 = int8_linear_matmul(a, b)
    return int8_mm_dequant(out_i32, dtype, bias)


class MatMul8bitLt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, layer, bias):
        shape = A.shape
        if len(shape) == 3:
            A = A.reshape(-1, A.shape[-1])
        CA, SCA = int8_vectorwise_quant(A.to(torch.float16), threshold=layer.threshold)
        output = int8_scaled_mm(CA, layer.weight, bias, A.dtype)
        ctx.layer, ctx.shape = layer, shape
        ctx.dtype_bias = None if bias is None else bias.dtype
        if ctx.needs_input_grad[0]:
            ctx.A = A
        if len(shape) == 3:
            return output.reshape(*shape[:-1], layer.weight.shape[0])
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_A = grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=ctx.dtype_bias)
        if len(grad_output.shape) == 3:
            grad_output = grad_output.reshape(-1, grad_output.shape[-1]).contiguous()
        if ctx.needs_input_grad[0]:
            CB = ctx.layer.weight.to(ctx.A.dtype, copy=True).mul_(ctx.layer.SCB.unsqueeze(1).mul(1.0 / 127.0))
            grad_A = torch.matmul(grad_output.to(ctx.A.dtype), CB).view(ctx.shape)
        return grad_A, None, grad_bias


class Linear8bitLt(QuantizedLinear):
    bits = 8

    def __init__(self, layer, threshold):
        super().__init__(layer)
        self.threshold = threshold

    def load(self, fn):
        w = self.weight.data if self.weight.shape == (self.out_features, self.in_features) else self.weight.data.t()
        B = fn(w.contiguous().to(torch.float16))
        CB, self.SCB = int8_vectorwise_quant(B)
        self.weight = nn.Parameter(CB, requires_grad=False)

    def read(self, stored=False):
        self.loaded = True
        if stored:
            CB = torch.empty(self.out_features, self.in_features, dtype=torch.int8, device=device)
            self.SCB = torch.empty(self.out_features, device=device)
        else:
            value = self.weight.data.to(device)
            w = value.t() if self.transposed else value
            B = w.to("cpu").contiguous().to(device=device, dtype=torch.float16)
            CB, self.SCB = int8_vectorwise_quant(B)
        self.weight = nn.Parameter(CB, requires_grad=False)

    def forward(self, x):
        if self.bias is not None and self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        return MatMul8bitLt.apply(x, self, self.bias)


LINEAR = (nn.Linear,)


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


class LoraLinear8bit(LoraLinear):
    def forward(self, x):
        result = self.base_layer(x)
        requires_conversion = not torch.is_autocast_enabled()
        if requires_conversion:
            expected_dtype = result.dtype
            x = x.to(self.lora_A.weight.dtype)
        output = self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling
        if requires_conversion:
            output = output.to(expected_dtype)
        result = result + output
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
model = Model()
model.to(torch.float16)
bnb_linear(model, Linear8bitLt, ["up", "*.up", "down", "*.down"], [], threshold=6.0)
model.to(device)
add_adapters(model, [
    (["up", "down"], lambda layer: LoraLinear8bit(layer, r=8, alpha=8.0, dropout=0.0)),
], dtype=torch.float32)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])


def next_batch():
    x = torch.randn(8, 16, 64, dtype=torch.float16)
    y = torch.zeros(8, 16, dtype=torch.int64)
    return x.to(device), y.to(device)


def step(i):
    x, y = next_batch()
    optimizer.zero_grad(set_to_none=True)
    out = model(x)
    loss = F.cross_entropy(out, y.view(-1))
    loss.backward()
    optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
