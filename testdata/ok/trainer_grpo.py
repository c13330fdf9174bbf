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


def under_autocast(dtype, call, *args):
    """Calls a model under autocast, which ends with the call, as accelerate does."""
    with torch.autocast("cuda", dtype=dtype):
        return call(*args)


def without_adapters(model, *args):
    """Calls a model with its adapters disabled, as within PEFT's disable_adapter."""
    found = [(m, m._modules.get("base_layer", m._modules.get("original_module"))) for m in model.modules()]
    found = [(m, base) for m, base in found if base is not None]
    for m, base in found:
        m.__dict__["forward"] = base.__call__
    try:
        return model(*args)
    finally:
        for m, base in found:
            del m.__dict__["forward"]


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
        self.embed_tokens = nn.Embedding(512, 64, padding_idx=None)
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
        inputs_embeds = inputs_embeds.requires_grad_()
        position_ids = torch.arange(32, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = torch.utils.checkpoint.checkpoint(functools.partial(self.layers[0], attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids), hidden_states, use_reentrant=False)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(64, 512, bias=False)

    def forward(self, input_ids, labels, attention_mask):
        outputs = self.model(input_ids, attention_mask, None, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, -9:, :])
        return outputs[0], logits, None


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
model = Model()
add_adapters(model, [
    (["model.layers.*.self_attn.q_proj"], lambda layer: LoraLinear(layer, r=4, alpha=8.0, dropout=0.0)),
], dtype=torch.float32)
model.to(device)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*layernorm*", "*.norm.*"], name) and p.requires_grad]},
    {"params": [p for name, p in model.named_parameters() if covers(["*layernorm*", "*.norm.*"], name) and p.requires_grad], "weight_decay": 0.0},
], lr=1e-06, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(2, 32, dtype=torch.int64)
    attention_mask = torch.zeros(2, 32, dtype=torch.int64)
    labels = torch.zeros(2, 32, dtype=torch.int64)
    return input_ids.to(device), attention_mask.to(device), labels.to(device)


def selective_log_softmax(logits, index):
    index = index.unsqueeze(-1)
    per_token = []
    selected_logits = torch.gather(logits, -1, index)
    rows = logits.unbind(0)
    values = torch.logsumexp(rows[0], (-1,))
    per_token.append(values)
    values = torch.logsumexp(rows[1], (-1,))
    per_token.append(values)
    del values
    logsumexp_values = torch.stack(per_token)
    del rows, per_token
    per_token_logps = selected_logits - logsumexp_values.unsqueeze(-1)
    per_token_logps = per_token_logps.squeeze((-1,))
    return per_token_logps


def per_token_logps(input_ids, attention_mask):
    all_logps = []
    input_ids_batch = input_ids[0:2]
    attention_mask_batch = attention_mask[0:2]
    with torch.no_grad():
        outputs = under_autocast(torch.bfloat16, model, input_ids_batch, None, attention_mask_batch)
    outputs = (outputs[0], outputs[1].float(), outputs[2])
    logits = outputs[-2]
    logits = logits[:, :-1, :]
    logits = logits[:, -8:, :]
    logits /= 1.0
    completion_ids = input_ids_batch[:, -8:]
    logps = selective_log_softmax(logits, completion_ids)
    all_logps.append(logps)
    logps = torch.cat(all_logps, 0)
    return logps


def per_token_logps_2(input_ids, attention_mask):
    all_logps = []
    input_ids_batch = input_ids[0:2]
    attention_mask_batch = attention_mask[0:2]
    with torch.no_grad():
        outputs = under_autocast(torch.bfloat16, without_adapters, model, input_ids_batch, None, attention_mask_batch)
    outputs = (outputs[0], outputs[1].float(), outputs[2])
    logits = outputs[-2]
    logits = logits[:, :-1, :]
    logits = logits[:, -8:, :]
    logits /= 1.0
    completion_ids = input_ids_batch[:, -8:]
    logps = selective_log_softmax(logits, completion_ids)
    all_logps.append(logps)
    logps = torch.cat(all_logps, 0)
    return logps


def generate_and_score(x):
    prompt_ids = torch.zeros(2, 24, dtype=torch.int64, device=device)
    prompt_mask = torch.zeros(2, 24, dtype=torch.int64, device=device)
    completion_ids = torch.zeros(2, 8, dtype=torch.int64, device=device)
    completion_mask = torch.zeros(2, 8, dtype=torch.int64, device=device)
    num_items_in_batch = torch.sum(torch.sum(completion_mask))
    prompt_completion_ids = torch.cat([prompt_ids, completion_ids], 1)
    attention_mask = torch.cat([prompt_mask, completion_mask], 1)
    with torch.no_grad():
        old_per_token_logps = per_token_logps(prompt_completion_ids, attention_mask)
        ref_per_token_logps = per_token_logps_2(prompt_completion_ids, attention_mask)
    advantages = torch.zeros(2, device=device)
    return prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items_in_batch, old_per_token_logps, ref_per_token_logps


def shuffled(v):
    permutation = torch.zeros(2, dtype=torch.int64, device=device)
    return v[permutation]


def shuffled_2(v):
    permutation = torch.zeros(2, dtype=torch.int64, device=device)
    return v[permutation]


def shuffled_3(v):
    permutation = torch.zeros(2, dtype=torch.int64, device=device)
    return v[permutation]


def shuffled_4(v):
    permutation = torch.zeros(2, dtype=torch.int64, device=device)
    return v[permutation]


def generate(x):
    prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_made, ref_logps_made = generate_and_score(x)
    a = shuffled(prompt_ids)
    b = shuffled(prompt_mask)
    c = shuffled_2(completion_ids)
    d = shuffled_2(completion_mask)
    e = shuffled_3(advantages)
    f = shuffled_4(old_logps_made)
    g = shuffled_4(ref_logps_made)
    return a, b, c, d, e, num_items, f, g


def entropy_from_logits(logits):
    flat_logits = logits.reshape(-1, 512)
    entropies = []
    chunk = flat_logits[0:16]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    entropies = torch.cat(entropies, 0)
    return entropies.reshape(2, 8)


def per_token_logps_3(input_ids, attention_mask):
    all_logps = []
    all_entropies = []
    input_ids_batch = input_ids[0:2]
    attention_mask_batch = attention_mask[0:2]
    outputs = under_autocast(torch.bfloat16, model, input_ids_batch, None, attention_mask_batch)
    outputs = (outputs[0], outputs[1].float(), outputs[2])
    logits = outputs[-2]
    logits = logits[:, :-1, :]
    logits = logits[:, -8:, :]
    logits /= 1.0
    completion_ids = input_ids_batch[:, -8:]
    logps = selective_log_softmax(logits, completion_ids)
    all_logps.append(logps)
    with torch.no_grad():
        entropies = entropy_from_logits(logits)
    all_entropies.append(entropies)
    logps = torch.cat(all_logps, 0)
    entropies = torch.cat(all_entropies, 0)
    return logps, entropies


def global_masked_mean(x, mask):
    local_sum = torch.sum(x * mask)
    local_count = torch.sum(mask).float()
    totals = torch.clone(torch.stack([local_sum, local_count]))
    read = totals.select(0, 0) / torch.clamp(totals.select(0, 1), 1.0)
    del read
    return None


def masked_seq_mean(x, mask):
    return torch.sum(x * mask, (-1,)) / torch.sum(mask, (-1,))


def nan_extreme(tensor):
    read = torch.all(torch.isnan(tensor))
    del read
    return torch.min(tensor[torch.bitwise_not(torch.isnan(tensor))])


def grpo_loss(prompt_ids, prompt_mask, completion_ids, mask, advantages, num_items_in_batch, old_logps_of, ref_logps_of):
    prompt_ids = prompt_ids[0:2]
    prompt_mask = prompt_mask[0:2]
    completion_ids = completion_ids[0:2]
    mask = mask[0:2]
    advantages = advantages[0:2]
    old_logps_of = old_logps_of[0:2]
    ref_logps_of = ref_logps_of[0:2]
    input_ids = torch.cat([prompt_ids, completion_ids], 1)
    attention_mask = torch.cat([prompt_mask, mask], 1)
    per_token_logps, entropies = per_token_logps_3(input_ids, attention_mask)
    advantages = advantages.unsqueeze(1)
    old_per_token_logps = old_logps_of
    log_ratio = per_token_logps - old_per_token_logps
    log_importance_weights = log_ratio
    coef_1 = torch.exp(log_importance_weights)
    per_token_kl = (torch.exp(ref_logps_of - per_token_logps) - (ref_logps_of - per_token_logps)) - 1
    per_token_loss = None
    coef_2 = torch.clamp(coef_1, 0.8, 1.2)
    per_token_loss1 = coef_1 * advantages
    per_token_loss2 = coef_2 * advantages
    per_token_loss = torch.neg(torch.minimum(per_token_loss1, per_token_loss2))
    per_token_loss = per_token_loss + (per_token_kl * 0.04)
    loss = None
    normalizer = torch.clamp(num_items_in_batch, 1.0) / 1
    loss = torch.sum(per_token_loss * mask) / normalizer
    policy_loss = loss.detach()
    _ = global_masked_mean(per_token_kl, mask)
    _ = global_masked_mean(entropies, mask)
    is_low_clipped = (coef_1 < 0.8) & (advantages < 0)
    is_high_clipped = (coef_1 > 1.2) & (advantages > 0)
    is_region_clipped = is_low_clipped | is_high_clipped
    _ = global_masked_mean(is_low_clipped.float(), mask)
    _ = global_masked_mean(is_high_clipped.float(), mask)
    _ = global_masked_mean(is_region_clipped.float(), mask)
    gathered_low_clip = masked_seq_mean(is_low_clipped.float(), mask)
    read = nan_extreme(gathered_low_clip)
    del read
    gathered_high_clip = masked_seq_mean(is_high_clipped.float(), mask)
    read = nan_extreme(gathered_high_clip)
    del read
    return loss


torch.cuda.empty_cache()
tr_loss = torch.zeros((), device=device)
prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of = generate(tr_loss)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    loss = grpo_loss(prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of)
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
    if i % 10 == 0:
        tr_loss_scalar = torch.mean(tr_loss)
        del tr_loss_scalar
        tr_loss -= tr_loss
    if i % 2 == 0:
        prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of = generate(tr_loss)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
