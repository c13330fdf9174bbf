"a model: a training step, written by memplan export torch."
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


def nonzero_count(input, count):
    """torch.nonzero of data of which so many elements are not zero; all elements of a script's data are."""
    input.view(-1)[:count].fill_(1)
    return torch.nonzero(input)


def launch(output, kernel):
    """A kernel of another library, which writes into a tensor: what it computes is left out."""
    return output


def require_half(input, kernel):
    """The check of a kernel of another library that takes two types alone."""
    if input.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"{kernel} takes float16 and bfloat16, not {input.dtype}")
    return input


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 64, bias=False)
        self.k_proj = nn.Linear(64, 64, bias=False)
        self.v_proj = nn.Linear(64, 64, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)

    def rotate_half(self, x):
        x1 = x[..., :8]
        x2 = x[..., 8:]
        return torch.cat([torch.neg(x2), x1], -1)

    def apply_rotary_pos_emb(self, q, k, cos, sin):
        cos = cos.unsqueeze(1)
        sin = sin.unsqueeze(1)
        q_embed = (q * cos) + (self.rotate_half(q) * sin)
        k_embed = (k * cos) + (self.rotate_half(k) * sin)
        return q_embed, k_embed

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.0 if self.training else 0.0, is_causal=True, scale=0.25, enable_gqa=True)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_proj(hidden_states).view(2, 64, -1, 16).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(2, 64, -1, 16).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(2, 64, -1, 16).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(2, 64, -1).contiguous()
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
        self.gate_proj = nn.Linear(64, 128, bias=False)
        self.up_proj = nn.Linear(64, 128, bias=False)
        self.down_proj = nn.Linear(128, 64, bias=False)
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


class LlamaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()
        self.mlp = LlamaMLP()
        self.input_layernorm = LlamaRMSNorm()
        self.post_attention_layernorm = LlamaRMSNorm()

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


class RotaryEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", torch.zeros(8), persistent=False)
        self.register_buffer("original_inv_freq", torch.zeros(8), persistent=False)

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
        self.embed_tokens = nn.Embedding(512, 64, padding_idx=None)
        self.layers = nn.ModuleList([LlamaDecoderLayer()])
        self.norm = LlamaRMSNorm()
        self.rotary_emb = RotaryEmbedding()

    def find_packed_sequence_indices(self, position_ids):
        first_dummy_value = position_ids[:, :1] - 1
        position_diff = torch.diff(position_ids, dim=-1, prepend=first_dummy_value)
        packed_sequence_mask = torch.cumsum(position_diff != 1, -1)
        packed = torch.all(packed_sequence_mask[:, -1] == 0)
        del packed
        return None

    def preprocess_mask_arguments(self, inputs_embeds, attention_mask, position_ids):
        position_ids = position_ids.expand(2, -1)
        packed_sequence_mask = self.find_packed_sequence_indices(position_ids)
        return attention_mask

    def sdpa_mask(self, inputs_embeds, attention_mask, block_sequence_ids):
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
        position_ids = torch.arange(64, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = self.layers[0](hidden_states, attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class LinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def logit_avg_for_hidden_states(e, c):
        logit_avg = None
        if e.requires_grad:
            logit_avg = torch.zeros(512, dtype=torch.float32, device=device)
        return logit_avg

    @staticmethod
    def cce_lse_forward_kernel(e, c, valids):
        lse = torch.full((126,), -1e+38, dtype=torch.float32, device=device)
        locks = torch.zeros(1, dtype=torch.int32, device=device)
        if c.requires_grad:
            logit_avg = torch.zeros(512, dtype=torch.float32, device=device)
        if not c.requires_grad:
            logit_avg = LinearCrossEntropyFunction.logit_avg_for_hidden_states(e, c)
        lse = launch(lse, "cce_lse_forward")
        return lse, logit_avg

    @staticmethod
    def indexed_neg_dot_forward_kernel(valids):
        out = torch.zeros(126, dtype=torch.float32, device=device)
        out = launch(out, "indexed_neg_dot_forward")
        return out

    @staticmethod
    def cce_backward_kernel(e, c, valids):
        e = require_half(e, "the backward pass of Cut Cross Entropy")
        c = require_half(c, "the backward pass of Cut Cross Entropy")
        de, dc = None, None
        if e.requires_grad:
            de = torch.zeros_like(e)
        if c.requires_grad:
            dc = torch.zeros_like(c)
        if e.requires_grad:
            de_locks = torch.zeros(1, 1, dtype=torch.int32, device=device)
        if c.requires_grad:
            dc_locks = torch.zeros(4, 1, dtype=torch.int32, device=device)
        if e.requires_grad:
            de = launch(de, "cce_backward")
        if c.requires_grad:
            dc = launch(dc, "cce_backward")
        return de, dc

    @staticmethod
    def forward(ctx, e, c, targets, valids):
        lse, logit_avg = LinearCrossEntropyFunction.cce_lse_forward_kernel(e, c, valids)
        neg_dot = LinearCrossEntropyFunction.indexed_neg_dot_forward_kernel(valids)
        nll = neg_dot.add_(lse)
        loss = torch.sum(nll)
        ctx.save_for_backward(e, c, lse, targets, valids, logit_avg)
        ctx.targets = targets
        ctx.valids = valids
        return loss

    @staticmethod
    def backward(ctx, grad_out):
        e, c, lse, targets, valids, logit_avg = ctx.saved_tensors
        params_targets = ctx.targets
        params_valids = ctx.valids
        vocab_ordering = torch.argsort(logit_avg).to(torch.int32)
        de, dc = LinearCrossEntropyFunction.cce_backward_kernel(e, c, valids)
        return de, dc, None, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(64, 512, bias=False)

    def build_flat_valids(self, targets):
        targets = targets[..., 1:]
        valids = nonzero_count(targets != (-100), 126).to(torch.int32)
        return torch.sum(valids, (1,))

    def cce_linear_cross_entropy(self, e, c, targets):
        e = e.contiguous()
        targets = targets.contiguous()
        valids = self.build_flat_valids(targets)
        e = torch.flatten(e, 0, -2)
        targets = torch.flatten(targets)
        return LinearCrossEntropyFunction.apply(e, c, targets, valids)

    def apply_lce(self, e, c, labels, num_items_in_batch):
        loss = self.cce_linear_cross_entropy(e, c, labels)
        loss = loss / num_items_in_batch
        return loss

    def forward(self, input_ids, labels, num_items_in_batch):
        outputs = self.model(input_ids, None, None, None)
        hidden_states = outputs[1]
        loss = self.apply_lce(hidden_states[:, 0:, :], self.lm_head.weight, labels, num_items_in_batch)
        return outputs[0], None, loss


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
    (["model.layers.*.self_attn.q_proj"], lambda layer: LoraLinear(layer, r=4, alpha=8.0, dropout=0.0)),
], dtype=torch.float32)
model.to(device)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*layernorm*", "*.norm.*"], name) and p.requires_grad]},
    {"params": [p for name, p in model.named_parameters() if covers(["*layernorm*", "*.norm.*"], name) and p.requires_grad], "weight_decay": 0.0},
], lr=5e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(2, 64, dtype=torch.int64)
    labels = torch.zeros(2, 64, dtype=torch.int64)
    return input_ids.to(device), labels.to(device)


def next_eval_batch():
    input_ids = torch.zeros(2, 64, dtype=torch.int64)
    labels = torch.zeros(2, 64, dtype=torch.int64)
    return input_ids.to(device), labels.to(device)


def evaluate(i):
    model.eval()
    with torch.no_grad():
        for _ in range(1):
            inputs = next_eval_batch()
            input_ids, labels = inputs
            counted = torch.sum(inputs[1][..., 1:] != (-100))
            num_items_in_batch = counted + 0
            del counted
            with torch.autocast("cuda", dtype=torch.bfloat16):
                outputs = model(input_ids, labels, num_items_in_batch)
            outputs = (outputs[0], outputs[1], outputs[2])
            loss = outputs[-1]
            loss *= 1
            losses = torch.mean(loss)
            del loss
            del outputs
            del num_items_in_batch
            losses = torch.tile(losses, (8,))
            losses = losses[:2]
            all_losses = losses
    model.train()


torch.cuda.empty_cache()
tr_loss = torch.zeros((), device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    fetched = []
    fetched_batch = next_batch()
    fetched.append(fetched_batch)
    del fetched_batch
    counted = torch.sum(fetched[0][1][..., 1:] != (-100))
    total = counted + 0
    del counted
    num_items_in_batch = total
    del total
    batch_samples = fetched
    del fetched
    input_ids, labels = batch_samples[0]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = model(input_ids, labels, num_items_in_batch)
    outputs = (outputs[0], outputs[1], outputs[2])
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
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
