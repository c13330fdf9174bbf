"a model: a training step, written by memplan export torch."
import copy
import fnmatch
import functools
import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 64, bias=False)
        self.k_proj = nn.Linear(64, 64, bias=False)
        self.v_proj = nn.Linear(64, 64, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)

    def rotate_half(self, x):
        x1 = x[..., :16]
        x2 = x[..., 16:]
        return torch.cat([torch.neg(x2), x1], -1)

    def apply_rotary_pos_emb(self, q, k, cos, sin):
        cos = cos.unsqueeze(1)
        sin = sin.unsqueeze(1)
        q_embed = (q * cos) + (self.rotate_half(q) * sin)
        k_embed = (k * cos) + (self.rotate_half(k) * sin)
        return q_embed, k_embed

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.0 if self.training else 0.0, is_causal=True, scale=0.17677669529663687, enable_gqa=True)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_proj(hidden_states).view(2, 32, -1, 32).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(2, 32, -1, 32).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(2, 32, -1, 32).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(2, 32, -1).contiguous()
        attn_output = self.o_proj(attn_output)
        return attn_output, attn_weights


class ActSilu(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.silu(x)


class LlamaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(64, 96, bias=False)
        self.up_proj = nn.Linear(64, 96, bias=False)
        self.down_proj = nn.Linear(96, 64, bias=False)
        self.act_fn = ActSilu()

    def forward(self, x):
        down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return down_proj


class LlamaRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaRMSNorm2(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()
        self.mlp = LlamaMLP()
        self.input_layernorm = LlamaRMSNorm()
        self.post_attention_layernorm = LlamaRMSNorm2()

    def forward(self, hidden_states, attention_mask, position_embeddings, position_ids):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states, _ = self.self_attn(hidden_states, position_embeddings, attention_mask)
        hidden_states = residual + F.dropout(hidden_states, 0.0, self.training)
        residual = hidden_states
        hidden_states = self.post_attention_layernorm(hidden_states)
        hidden_states = self.mlp(hidden_states)
        hidden_states = residual + F.dropout(hidden_states, 0.0, self.training)
        return hidden_states


class LlamaRMSNorm3(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class RotaryEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", torch.zeros(16), persistent=False)
        self.register_buffer("original_inv_freq", torch.zeros(16), persistent=False)

    def forward(self, x, position_ids):
        with torch.autocast("cuda", enabled=False):
            inv_freq_expanded = self.inv_freq[None, :, None].float().expand(1, -1, 1)
            position_ids_expanded = position_ids[:, None, :].float()
            freqs = (inv_freq_expanded.float() @ position_ids_expanded.float()).transpose(1, 2)
            emb = torch.cat([freqs, freqs], -1)
            cos = torch.cos(emb) * 1.0
            sin = torch.sin(emb) * 1.0
            return cos.type_as(x), sin.type_as(x)


class LlamaModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(200, 64, padding_idx=None)
        self.layers = nn.ModuleList([LlamaDecoderLayer()])
        self.norm = LlamaRMSNorm3()
        self.rotary_emb = RotaryEmbedding()

    def preprocess_mask_arguments(self, inputs_embeds, attention_mask, position_ids):
        attention_mask = attention_mask.bool()
        return attention_mask

    def sdpa_mask(self, inputs_embeds, attention_mask, block_sequence_ids):
        full = torch.all(attention_mask)
        del full
        return None

    def mask_interface(self, inputs_embeds, attention_mask, block_sequence_ids):
        allowed = self.sdpa_mask(inputs_embeds, attention_mask, block_sequence_ids)
        return allowed

    def create_causal_mask(self, inputs_embeds, attention_mask, position_ids):
        attention_mask = self.preprocess_mask_arguments(inputs_embeds, attention_mask, position_ids)
        causal_mask = self.mask_interface(inputs_embeds, attention_mask, None)
        return causal_mask

    def forward(self, input_ids, attention_mask, position_ids, inputs_embeds):
        inputs_embeds = self.embed_tokens(input_ids)
        inputs_embeds = inputs_embeds.requires_grad_()
        position_ids = torch.arange(32, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = torch.utils.checkpoint.checkpoint(functools.partial(self.layers[0], attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids), hidden_states, use_reentrant=True)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(64, 200, bias=False)

    def fixed_cross_entropy(self, source, target, num_items_in_batch):
        loss = F.cross_entropy(source, target, reduction="sum")
        loss = loss / num_items_in_batch
        return loss

    def ForCausalLMLoss(self, logits, labels, num_items_in_batch):
        logits = logits.float()
        labels = F.pad(labels, (0, 1), value=-100.0)
        shift_labels = labels[:, 1:].contiguous()
        logits = logits.view(-1, 200)
        shift_labels = shift_labels.view(-1)
        loss = self.fixed_cross_entropy(logits, shift_labels, num_items_in_batch)
        return loss

    def forward(self, input_ids, labels, attention_mask, num_items_in_batch):
        outputs = self.model(input_ids, attention_mask, None, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, 0:, :])
        loss = self.ForCausalLMLoss(logits, labels, num_items_in_batch)
        return outputs[0], logits, loss


def natural(name):
    return [(0, int(p)) if p.isdigit() else (1, p) for p in name.split(".")]


def from_pretrained(model, *stored, auto=False):
    """Moves a model to the GPU as from_pretrained reads one there: a block of the size of all weights, but for memory that is
    reserved and unused, comes and goes; then come the tensors of the checkpoint, by their names, and the biases of tied layers again."""
    if auto:  # device_map="auto"
        torch.tensor([0], device=device)
    quantized = {id(m.weight): m for m in model.modules() if hasattr(m, "read")}
    others = {f"{path}.{n}" if path else n for path, m in model.named_modules() for n in m._non_persistent_buffers_set}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = sorted((n for n in tensors if n not in others), key=natural)
    sizes = [t.numel() * (quantized[id(t)].bits / 8 if id(t) in quantized else t.element_size()) for t in map(tensors.get, names)]
    size, unused = sum(sizes), torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    size = size - unused if size - unused > unused else unused + 1 if size - unused > 1.5 * 1024**3 else 0
    torch.empty(int(size // 2), dtype=torch.float16, device=device)
    for n in names + [n for n in tensors if n in others]:
        if id(tensors[n]) in quantized:
            quantized[id(tensors[n])].read(*stored)
        else:
            tensors[n].data = tensors[n].data.to(device)
    paths = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    for m in model.modules():  # tie_weights
        if getattr(m, "bias", None) is not None and paths.count(id(m.weight)) > 1:
            m.bias.data = F.pad(m.bias.data, (0, 0))


def convert(model, modules, dtype, except_=()):
    """Converts the parameters of modules one by one, but for quantized weights."""
    packed = {id(m.weight) for m in model.modules() if hasattr(m, "read")}
    for path, m in model.named_modules():
        for p in m.parameters(recurse=False) if covers(modules, path) and not covers(except_, path) else ():
            if p.is_floating_point() and id(p) not in packed:
                p.data = p.data.to(dtype)


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


def gemm_4bit(A, state, bias, rows):
    out_features, in_features = state["shape"]
    if A.numel() <= rows * in_features:
        A = A.contiguous()
        return torch.empty(*A.shape[:-1], out_features, dtype=A.dtype, device=A.device)
    if "nested" in state:
        absmax_dq = torch.empty_like(state["absmax"], dtype=torch.float32)
        absmax = absmax_dq + state["offset"]
    weight = torch.empty(out_features, in_features, dtype=A.dtype, device=A.device)
    return F.linear(A, weight, bias)


class Gemm4Bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B, bias, state, rows):
        output = gemm_4bit(A, state, bias, rows)
        ctx.state = state
        ctx.B = B
        ctx.dtype_bias = None if bias is None else bias.dtype
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_A = grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=ctx.dtype_bias)
        if ctx.needs_input_grad[0]:
            grad_A = torch.matmul(grad_output, dequantize_4bit(ctx.B, ctx.state).to(grad_output.dtype))
        return grad_A, None, grad_bias, None, None


class Linear4bit(Linear4bit):
    """That of bitsandbytes 0.50; rows: up to how many a kernel reads the packed weight."""

    def __init__(self, layer, compute_dtype, double_quant, storage, rows):
        super().__init__(layer, compute_dtype, double_quant, storage)
        self.rows = rows[self.out_features, self.in_features]

    def forward(self, x):
        inp_dtype = x.dtype
        x = x.to(self.compute_dtype)
        bias = self.bias
        if bias is not None:
            if bias.dtype != x.dtype:
                bias.data = bias.data.to(x.dtype)
            bias = bias.to(self.compute_dtype)
        return Gemm4Bit.apply(x, self.weight, bias, self.state, self.rows).to(inp_dtype)


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


class OFTLinear(Adapter):
    """A linear layer with OFT: blocks of its input are rotated."""

    def __init__(self, base_layer, blocks, size, terms, share=False, coft=False, eps=6e-5):
        super().__init__(base_layer)
        self.blocks, self.size, self.terms, self.share = blocks, size, terms, share
        self.coft, self.eps = coft, eps
        self.oft_R = nn.Parameter(torch.zeros(1 if share else blocks, size * (size - 1) // 2))
        rows, cols = torch.triu_indices(size, size, 1)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("cols", cols, persistent=False)

    def skew_symmetric(self, vec):
        matrix = torch.zeros(vec.shape[0], self.size, self.size, device=vec.device, dtype=vec.dtype)
        matrix[:, self.rows, self.cols] = vec
        matrix = matrix - matrix.transpose(-2, -1)
        return matrix

    def project_batch(self, Q):
        skew = self.skew_symmetric(Q)
        eps = self.eps / len(Q) ** 0.5
        zero = torch.zeros(self.size, self.size, device=Q.device, dtype=Q.dtype)
        diff = skew - zero
        norm_diff = torch.norm(skew - zero, dim=(1, 2), keepdim=True)
        mask = norm_diff <= eps
        out = torch.where(mask, skew, zero + eps * (diff / norm_diff))
        return out[:, self.rows, self.cols]

    def cayley_batch(self, Q):
        Q_skew = self.skew_symmetric(Q)
        if self.terms is None:
            id_mat = torch.eye(self.size, device=Q.device)
            R = torch.linalg.solve(id_mat + Q_skew, id_mat - Q_skew, left=False)
            return R.to(Q.dtype)
        R = torch.eye(self.size, device=Q.device, dtype=Q.dtype).repeat(Q.shape[0], 1, 1)
        if self.terms > 1:
            R.add_(Q_skew, alpha=2.0)
        if self.terms > 2:
            Q_squared = torch.bmm(Q_skew, Q_skew)
            R.add_(Q_squared, alpha=2.0)
            Q_power = Q_squared
            for _ in range(3, self.terms - 1):
                Q_power = torch.bmm(Q_power, Q_skew)
                R.add_(Q_power, alpha=2.0)
            Q_power = torch.bmm(Q_power, Q_skew)
            R.add_(Q_power)
        return R

    def oft_rotate(self, x):
        required_dtype = x.dtype
        x = x.to(self.oft_R.dtype)
        if self.coft:
            with torch.no_grad():
                self.oft_R.copy_(self.project_batch(self.oft_R))
        orth_rotate = self.cayley_batch(self.oft_R)
        x_reshaped = x.unflatten(-1, (self.blocks, self.size))
        if self.share:
            orth_rotate = orth_rotate.repeat(self.blocks, 1, 1)
        x_rotated_reshaped = torch.einsum("...rk,rkc->...rc", x_reshaped, orth_rotate)
        x_rotated = x_rotated_reshaped.flatten(-2, -1)
        return x_rotated.to(required_dtype)

    def forward(self, x):
        previous_dtype = x.dtype
        x = x.to(self.oft_R.dtype)
        x = self.oft_rotate(x)
        result = self.base_layer(x.to(previous_dtype))
        result = result.to(previous_dtype)
        return result


class OFTQuantized(OFTLinear):
    """OFT around a layer of 4 or 8 bits, which converts outside of autocast alone."""

    def forward(self, x):
        previous_dtype = x.dtype
        if not torch.is_autocast_enabled():
            x = x.to(self.oft_R.dtype)
        x = self.oft_rotate(x)
        if not torch.is_autocast_enabled():
            x = x.to(previous_dtype)
        result = self.base_layer(x)
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


def typed(model, dtype, own):
    """Converts a model on the CPU; own: the tensors that have another type."""
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        if t.is_floating_point():
            t.data = t.data.to(own.get(name, dtype))
    return model


model = typed(Model(), torch.bfloat16, {
    "model.rotary_emb.inv_freq": torch.float32,
    "model.rotary_emb.original_inv_freq": torch.float32,
})
rows = {(64, 64): 7, (64, 96): 0, (96, 64): 7}
bnb_linear(model, Linear4bit, ["*"], ["lm_head"], compute_dtype=torch.float32, double_quant=False, storage=torch.uint8, rows=rows)
from_pretrained(model)
convert(model, ["*"], torch.float32)
torch.cuda.empty_cache()
add_adapters(model, [
    (["model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.v_proj"], lambda layer: OFTQuantized(layer, blocks=4, size=16, terms=5, share=True)),
], dtype=torch.float32)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*layernorm*", "*.norm.*"], name) and p.requires_grad]},
    {"params": [p for name, p in model.named_parameters() if covers(["*layernorm*", "*.norm.*"], name) and p.requires_grad], "weight_decay": 0.0},
], lr=5e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(2, 32, dtype=torch.int64)
    attention_mask = torch.zeros(2, 32, dtype=torch.int64)
    labels = torch.zeros(2, 32, dtype=torch.int64)
    return input_ids.to(device), attention_mask.to(device), labels.to(device)


torch.cuda.empty_cache()
tr_loss = torch.zeros((), device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    fetched = []
    fetched_batch = next_batch()
    fetched.append(fetched_batch)
    del fetched_batch
    counted = torch.sum(fetched[0][2][..., 1:] != (-100))
    total = counted + 0
    del counted
    num_items_in_batch = total
    del total
    batch_samples = fetched
    del fetched
    input_ids, attention_mask, labels = batch_samples[0]
    outputs = model(input_ids, labels, attention_mask, num_items_in_batch)
    loss = outputs[-1]
    loss *= 1
    del outputs
    scaled = loss / 1
    scaled.backward()
    del scaled
    tr_loss_step = loss.detach()
    del loss
    found = torch.isnan(tr_loss_step)
    del found
    found = torch.isinf(tr_loss_step)
    del found
    tr_loss += tr_loss_step
    grad_norm = None
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
