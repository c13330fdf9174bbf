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
        self.norm = LlamaRMSNorm()
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
        position_ids = torch.arange(32, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = self.layers[0](hidden_states, attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids)
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


class BOFTLinear(Adapter):
    """A linear layer with BOFT, without its CUDA extension: all of its input is rotated, and its output scaled."""

    def __init__(self, base_layer, blocks, size, dropout=0.0):
        super().__init__(base_layer)
        n_in, n_out = features(base_layer)
        self.dropout = dropout
        self.boft_R = nn.Parameter(torch.zeros(1, blocks, size, size))
        self.boft_s = nn.Parameter(torch.ones(n_out, 1))
        self.register_buffer("boft_P", torch.eye(n_in).unsqueeze(0), persistent=False)

    def cayley_batch(self, data):
        skew_mat = 0.5 * (data - data.transpose(1, 2))
        id_mat = torch.eye(data.shape[-1], device=data.device)
        Q = torch.linalg.solve(id_mat + skew_mat, id_mat - skew_mat, left=False)
        return Q.to(data.dtype)

    def boft_dropout(self, x):
        if not self.training:
            return x
        n = len(x)
        replaced = int(self.dropout * n)
        mask = torch.cat([torch.ones(replaced, device=x.device), torch.zeros(n - replaced, device=x.device)])
        mask = mask[torch.randperm(n)].view(n, 1, 1)
        full_mask = torch.zeros(n, 1, 1, device=x.device)
        full_mask[:] = mask
        eye_matrix = torch.eye(x.shape[-1], device=x.device).repeat(n, 1, 1)
        x = (1 - full_mask) * x + full_mask * eye_matrix
        return x

    def forward(self, x):
        previous_dtype = x.dtype
        boft_rotation = torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)
        boft_scale = torch.ones(len(self.boft_s), 1, device=x.device, dtype=x.dtype)
        orth_rotate = self.cayley_batch(self.boft_R.flatten(0, 1))
        if self.dropout:
            orth_rotate = self.boft_dropout(orth_rotate)
        block_diagonal = torch.block_diag(*torch.unbind(orth_rotate)).unsqueeze(0)
        boft_P = self.boft_P.to(x.dtype)
        block_diagonal = block_diagonal.to(x.dtype)
        mat_batch = torch.bmm(block_diagonal, boft_P.transpose(1, 2))
        mat_batch = torch.bmm(boft_P, mat_batch)
        mat = mat_batch[0]
        boft_rotation = mat @ boft_rotation
        boft_scale = self.boft_s * boft_scale
        boft_rotation = boft_rotation.to(previous_dtype)
        x_rotated = x @ boft_rotation
        result = self.base_layer(x_rotated)
        bias = self.base_layer.bias
        if bias is not None:
            result = result - bias
        result = result * boft_scale.squeeze(-1)
        if bias is not None:
            result = result + bias
        result = result.to(previous_dtype)
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
add_adapters(model, [
    (["model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.o_proj", "model.layers.*.mlp.gate_proj", "model.layers.*.mlp.up_proj"], lambda layer: BOFTLinear(layer, blocks=4, size=16, dropout=0.5)),
], dtype=torch.float32)
model.to(device)
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
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = model(input_ids, labels, attention_mask, num_items_in_batch)
    outputs = (outputs[0], outputs[1].float(), outputs[2])
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
