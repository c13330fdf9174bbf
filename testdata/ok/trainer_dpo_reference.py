"a model: a training step, written by memplan export torch."
import fnmatch
import functools
import json

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
        query_states = self.q_proj(hidden_states).view(4, 128, -1, 16).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(4, 128, -1, 16).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(4, 128, -1, 16).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(4, 128, -1).contiguous()
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
        self.embed_tokens = nn.Embedding(200, 64, padding_idx=None)
        self.layers = nn.ModuleList([LlamaDecoderLayer(), LlamaDecoderLayer()])
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
        position_ids = torch.arange(128, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = torch.utils.checkpoint.checkpoint(functools.partial(self.layers[0], attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids), hidden_states, use_reentrant=False)
        hidden_states = torch.utils.checkpoint.checkpoint(functools.partial(self.layers[1], attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids), hidden_states, use_reentrant=False)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(64, 200, bias=False)

    def forward(self, input_ids, labels, attention_mask):
        outputs = self.model(input_ids, attention_mask, None, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, 0:, :])
        return outputs[0], logits, None


class LlamaAttention2(nn.Module):
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
        query_states = self.q_proj(hidden_states).view(4, 128, -1, 16).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(4, 128, -1, 16).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(4, 128, -1, 16).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(4, 128, -1).contiguous()
        attn_output = self.o_proj(attn_output)
        return attn_output, attn_weights


class ActSilu2(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.silu(x)


class LlamaMLP2(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(64, 96, bias=False)
        self.up_proj = nn.Linear(64, 96, bias=False)
        self.down_proj = nn.Linear(96, 64, bias=False)
        self.act_fn = ActSilu2()

    def forward(self, x):
        down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return down_proj


class LlamaRMSNorm2(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaDecoderLayer2(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention2()
        self.mlp = LlamaMLP2()
        self.input_layernorm = LlamaRMSNorm2()
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


class RotaryEmbedding2(nn.Module):
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


class LlamaModel2(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(200, 64, padding_idx=None)
        self.layers = nn.ModuleList([LlamaDecoderLayer2(), LlamaDecoderLayer2()])
        self.norm = LlamaRMSNorm2()
        self.rotary_emb = RotaryEmbedding2()

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
        position_ids = torch.arange(128, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = self.layers[0](hidden_states, attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids)
        hidden_states = self.layers[1](hidden_states, attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel2()
        self.lm_head = nn.Linear(64, 200, bias=False)

    def forward(self, input_ids, labels, attention_mask):
        outputs = self.model(input_ids, attention_mask, None, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, 0:, :])
        return outputs[0], logits, None


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
from_pretrained(model)
reference = typed(Reference(), torch.bfloat16, {
    "model.rotary_emb.inv_freq": torch.float32,
    "model.rotary_emb.original_inv_freq": torch.float32,
})
from_pretrained(reference, auto=True)
reference.eval()
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*layernorm*", "*.norm.*"], name)]},
    {"params": [p for name, p in model.named_parameters() if covers(["*layernorm*", "*.norm.*"], name)], "weight_decay": 0.0},
], lr=1e-06, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(4, 128, dtype=torch.int64)
    attention_mask = torch.zeros(4, 128, dtype=torch.int64)
    labels = torch.zeros(4, 128, dtype=torch.int64)
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
    values = torch.logsumexp(rows[2], (-1,))
    per_token.append(values)
    values = torch.logsumexp(rows[3], (-1,))
    per_token.append(values)
    del values
    logsumexp_values = torch.stack(per_token)
    del rows, per_token
    per_token_logps = selected_logits - logsumexp_values.unsqueeze(-1)
    per_token_logps = per_token_logps.squeeze((-1,))
    return per_token_logps


def entropy_from_logits(logits):
    flat_logits = logits.reshape(-1, 200)
    entropies = []
    chunk = flat_logits[0:128]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    chunk = flat_logits[128:256]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    chunk = flat_logits[256:384]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    chunk = flat_logits[384:508]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    entropies = torch.cat(entropies, 0)
    return entropies.reshape(4, 127)


def dpo_loss(input_ids, attention_mask, labels):
    outputs = under_autocast(torch.bfloat16, model, input_ids, labels, attention_mask)
    outputs = (outputs[0], outputs[1].float(), outputs[2])
    shift_logits = outputs[-2][..., :-1, :]
    shift_labels = input_ids[..., 1:]
    shift_completion_mask = labels[..., 1:]
    per_token_logps = selective_log_softmax(shift_logits, shift_labels)
    per_token_logps = per_token_logps.masked_fill_(shift_completion_mask == 0, 0.0)
    logps = torch.sum(per_token_logps, (1,))
    chosen_logps, rejected_logps = logps.chunk(2, 0)
    with torch.no_grad():
        ref_outputs = under_autocast(torch.bfloat16, reference, input_ids, labels, attention_mask)
    ref_outputs = (ref_outputs[0], ref_outputs[1].float(), ref_outputs[2])
    ref_shift_logits = ref_outputs[-2][..., :-1, :]
    ref_per_token_logps = selective_log_softmax(ref_shift_logits, shift_labels)
    ref_per_token_logps = ref_per_token_logps.masked_fill_(shift_completion_mask == 0, 0.0)
    ref_logps = torch.sum(ref_per_token_logps, (1,))
    ref_chosen_logps, ref_rejected_logps = ref_logps.chunk(2, 0)
    chosen_logratios = chosen_logps - ref_chosen_logps
    rejected_logratios = rejected_logps - ref_rejected_logps
    chosen_scores = chosen_logratios
    rejected_scores = rejected_logratios
    delta_score = chosen_scores - rejected_scores
    per_sequence_loss = torch.neg(F.logsigmoid(delta_score * 0.1))
    loss = (torch.mean(per_sequence_loss) * 1.0) + 0.0
    per_token_entropy = entropy_from_logits(shift_logits.detach())
    mask = shift_completion_mask
    entropy_sum = torch.sum(per_token_entropy * mask)
    total_tokens = torch.sum(mask)
    entropy_sum = torch.sum(entropy_sum)
    total_tokens = torch.sum(total_tokens)
    read = total_tokens > 0
    del read
    read = entropy_sum / total_tokens
    del read
    read = torch.sum(torch.sum(attention_mask))
    del read
    chosen_logits, rejected_logits = shift_logits.detach().chunk(2, 0)
    chosen_mask, rejected_mask = shift_completion_mask.chunk(2, 0)
    total_chosen_logits = torch.sum(torch.mean(chosen_logits[chosen_mask.bool()], (-1,)))
    total_chosen_tokens = torch.sum(chosen_mask)
    total_rejected_logits = torch.sum(torch.mean(rejected_logits[rejected_mask.bool()], (-1,)))
    total_rejected_tokens = torch.sum(rejected_mask)
    read = torch.sum(total_chosen_logits)
    del read, total_chosen_logits
    read = torch.sum(total_chosen_tokens)
    del read, total_chosen_tokens
    read = torch.sum(total_rejected_logits)
    del read, total_rejected_logits
    read = torch.sum(total_rejected_tokens)
    del read, total_rejected_tokens
    predictions = torch.argmax(chosen_logits, -1)
    chosen_mask = shift_completion_mask[:2].bool()
    chosen_labels = shift_labels[:2]
    correct_predictions = (predictions == chosen_labels) & chosen_mask
    total_tokens = torch.sum(chosen_mask)
    correct_tokens = torch.sum(correct_predictions)
    total_sum = torch.sum(total_tokens)
    read = total_sum > 0
    del read
    read = torch.sum(correct_tokens) / total_sum
    del read
    chosen_rewards = chosen_logratios.detach() * 0.1
    rejected_rewards = rejected_logratios.detach() * 0.1
    read = torch.mean(chosen_rewards)
    del read
    read = torch.mean(rejected_rewards)
    del read
    reward_accuracies = (chosen_rewards > rejected_rewards).float()
    read = torch.mean(reward_accuracies)
    del read
    margins = chosen_rewards - rejected_rewards
    read = torch.mean(margins)
    del read
    read = torch.mean(chosen_logps)
    del read
    read = torch.mean(rejected_logps)
    del read
    return loss


torch.cuda.empty_cache()
tr_loss = torch.zeros((), device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    fetched = []
    fetched_batch = next_batch()
    fetched.append(fetched_batch)
    del fetched_batch
    batch_samples = fetched
    del fetched
    input_ids, attention_mask, labels = batch_samples[0]
    loss = dpo_loss(input_ids, attention_mask, labels)
    loss = loss / 1
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
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
