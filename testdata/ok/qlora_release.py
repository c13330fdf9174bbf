"qlora_release: a training step, written by memplan export torch."
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
        self.layers = nn.ModuleList([nn.ReLU(), nn.LayerNorm(64)])
        self.down = nn.Linear(256, 64, bias=False)
        self.head = nn.Linear(64, 100)

    def forward(self, x):
        x = self.up(x)
        x = self.layers[0](x)
        x = self.down(x)
        x = self.layers[1](x)
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


maxima_table = {}


def quantize_blockwise(a, blocksize=256):
    if not maxima_table:
        maxima_table["dynamic"] = torch.zeros(256).to(a.device)
    absmax = torch.empty(-(a.numel() // -blocksize), dtype=torch.float32, device=a.device)
    out = torch.empty_like(a, dtype=torch.uint8)
    return out, absmax, maxima_table["dynamic"].to(a.device, copy=True)


def quantize_4bit(a, double_quant, storage=torch.uint8):
    absmax = torch.empty(-(a.numel() // -64), dtype=torch.float32, device=a.device)
    out = torch.empty((a.numel() + 1) // (2 * storage.itemsize), 1, dtype=storage, device=a.device)
    code = torch.tensor([0.0] * 16, device=a.device)
    code.div_(code.abs().max())
    state = {"absmax": absmax, "code": code, "shape": a.shape, "dtype": a.dtype}
    if double_quant:
        offset = absmax.mean()
        state["absmax"], nested, table = quantize_blockwise(absmax - offset)
        del absmax
        state.update(offset=offset, nested=nested, table=table)
    return out, state


def dequantize_4bit(a, state):
    absmax = state["absmax"]
    if "nested" in state:
        absmax = torch.empty_like(absmax, dtype=torch.float32)
        absmax += state["offset"]
    out = torch.empty(state["shape"], dtype=state["dtype"], device=a.device)
    if a.shape[0] == 1:
        return out.t()
    return out


class MatMul4Bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B, bias, state, keeps):
        output = F.linear(A, dequantize_4bit(B, state).to(A.dtype).t(), bias)
        ctx.state = state
        ctx.B = B
        ctx.dtype_bias = None if bias is None else bias.dtype
        if keeps and ctx.needs_input_grad[0]:
            ctx.A = A
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_A = grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=ctx.dtype_bias)
        if ctx.needs_input_grad[0]:
            grad_A = torch.matmul(grad_output, dequantize_4bit(ctx.B, ctx.state).to(grad_output.dtype).t())
        return grad_A, None, grad_bias, None, None


class Linear4bit(QuantizedLinear):
    bits = 4

    def __init__(self, layer, compute_dtype, double_quant, storage=torch.uint8, half=False, keeps=False):
        super().__init__(layer)
        self.compute_dtype, self.double_quant, self.storage = compute_dtype, double_quant, storage
        self.half_first, self.keeps = half, keeps

    def load(self, fn):
        w = self.weight.data if self.weight.shape == (self.out_features, self.in_features) else self.weight.data.t()
        w = fn(w.contiguous().half() if self.half_first else w.contiguous())
        w_4bit, self.state = quantize_4bit(w, self.double_quant, self.storage)
        self.weight = nn.Parameter(w_4bit, requires_grad=False)

    def read(self, stored=False):
        self.loaded = True
        if stored:
            n = self.weight.numel()
            w_4bit = torch.empty((n + 1) // (2 * self.storage.itemsize), 1, dtype=self.storage, device=device)
            absmax = torch.empty(-(n // -64), dtype=torch.uint8 if self.double_quant else torch.float32, device=device)
            shape = (self.out_features, self.in_features)
            self.state = {"absmax": absmax, "code": torch.empty(16, device=device), "shape": shape, "dtype": self.weight.dtype}
            if self.double_quant:
                self.state["offset"] = torch.empty((), device=device)
                self.state["nested"] = torch.empty(-(absmax.numel() // -256), device=device)
                self.state["table"] = torch.empty(256, device=device)
        else:
            value = self.weight.data.to(device)
            w = value.t() if self.transposed else value
            w_4bit, self.state = quantize_4bit(w.contiguous(), self.double_quant, self.storage)
        self.weight = nn.Parameter(w_4bit, requires_grad=False)

    def forward(self, x):
        if self.bias is not None and self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        inp_dtype = x.dtype
        x = x.to(self.compute_dtype)
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        return MatMul4Bit.apply(x, self.weight.t(), bias, self.state, self.keeps).to(inp_dtype)


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


class LoraLinear4bit(LoraLinear):
    def forward(self, x):
        result = self.base_layer(x)
        result = result.clone()
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
model.to(torch.bfloat16)
bnb_linear(model, Linear4bit, ["*"], [], compute_dtype=torch.bfloat16, double_quant=False, half=True, keeps=True)
model.to(device)
add_adapters(model, [
    (["up"], lambda layer: LoraLinear4bit(layer, r=8, alpha=8.0, dropout=0.0)),
], dtype=torch.float32)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])


def next_batch():
    x = torch.randn(8, 16, 64, dtype=torch.bfloat16)
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
