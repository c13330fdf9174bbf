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


def sms(x):
    return torch.cuda.get_device_properties(x.device).multi_processor_count


def ceil(n, m):
    return -(n // -m)


def head(d):
    return ceil(d, 32) * 32 if d <= 128 else ceil(d, 64) * 64


def num_splits(work, limit, keys):
    """num_splits_heuristic: how many parts of the keys fill the GPU."""
    if work >= 0.8 * limit:
        return 1
    eligible = [n for n in range(1, min(128, limit, keys) + 1) if n == 1 or ceil(keys, n) != ceil(keys, n - 1)]
    efficiency = {n: work * n / limit / ceil(work * n, limit) for n in eligible}
    return min(n for n in eligible if efficiency[n] >= 0.85 * max(efficiency.values()))


def dense(x):
    return x.contiguous() if x.stride(-1) != 1 else x


def empty(like, *size, dtype=torch.float32):
    return torch.empty(size, dtype=dtype, device=like.device)


def _flash_attn_forward(q, k, v, dropout=0.0, causal=False):
    q, k, v = dense(q), dense(k), dense(v)
    b, rows, heads, d = q.shape
    out, lse = torch.empty_like(q), empty(q, b, heads, rows)
    if dropout == 0:
        n = num_splits(b * heads * ceil(rows, 64), 2 * sms(q), ceil(k.shape[1], 256 if d <= 64 else 128 if d <= 128 else 64))
        if n > 1:
            lse_accum, out_accum = empty(q, n, b, heads, rows), empty(q, n, b, heads, rows, head(d))
    rng_state = empty(q, 2, dtype=torch.int64)
    out_accum = lse_accum = None
    return out, lse, rng_state


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, dropout=0.0, causal=False):
    q, k, v = dense(q), dense(k), dense(v)
    return torch.empty_like(q), empty(q, q.shape[1], q.shape[0]), empty(q, 2, dtype=torch.int64)


def accumulate(q, k, dk, dv, batch, size, deterministic):
    heads, groups = q.shape[-2], q.shape[-2] // k.shape[-2]
    dq_accum = torch.zeros(ceil(sms(q), batch * heads), *size, device=q.device) if deterministic else empty(q, *size)
    if groups > 1:
        expanded = (*k.shape[:-1], groups, k.shape[-1])
        dk_expanded, dv_expanded = empty(q, *expanded, dtype=k.dtype), empty(q, *expanded, dtype=k.dtype)
        torch.sum(dk_expanded, -2, out=dk)
        torch.sum(dv_expanded, -2, out=dv)
        del dv_expanded, dk_expanded


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout=0.0, causal=False, deterministic=False):
    dout, q, k, v, out = dense(dout), dense(q), dense(k), dense(v), dense(out)
    b, rows, heads, d = q.shape
    rows = ceil(rows, 128) * 128
    softmax_d = empty(q, b, heads, rows)
    accumulate(q, k, dk, dv, b, (b, rows, heads, head(d)), deterministic)
    return softmax_d


def _flash_attn_varlen_backward(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, dropout=0.0, causal=False, deterministic=False
):
    dout, q, k, v, out = dense(dout), dense(q), dense(k), dense(v), dense(out)
    b, heads = cu_seqlens_q.numel() - 1, q.shape[1]
    rows = q.shape[0] + 128 * b
    softmax_d = empty(q, heads, rows)
    accumulate(q, k, dk, dv, b, (rows, heads, head(q.shape[-1])), deterministic)
    return softmax_d


def nonzero_count(input, count):
    """torch.nonzero of data of which so many elements are not zero; all elements of a script's data are."""
    input.view(-1)[:count].fill_(1)
    return torch.nonzero(input)


def to_autocast(input):
    return input.to(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else input


class FlashAttnVarlenFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen):
        out_padded, softmax_lse, rng_state = _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, 0.0, True)
        ctx.save_for_backward(q, k, v, out_padded, softmax_lse, cu_seqlens_q, cu_seqlens_k, rng_state)
        ctx.max_seqlen = max_seqlen
        return out_padded[..., :16]

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, rng_state = ctx.saved_tensors
        max_seqlen = ctx.max_seqlen
        dq = torch.empty_like(q)
        dk = torch.empty_like(k)
        dv = torch.empty_like(v)
        dout_padded = dout
        softmax_d = _flash_attn_varlen_backward(dout_padded, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k)
        del softmax_d
        return dq[..., :16], dk[..., :16], dv[..., :16], None, None, None


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 64, bias=True)
        self.k_proj = nn.Linear(64, 32, bias=True)
        self.v_proj = nn.Linear(64, 32, bias=True)
        self.o_proj = nn.Linear(64, 64, bias=False)

    def rotate_half(self, x):
        x1 = x[..., :8]
        x2 = x[..., 8:]
        return torch.cat([torch.neg(x2), x1], -1)

    def rotate_half_2(self, x):
        x1 = x[..., :8]
        x2 = x[..., 8:]
        return torch.cat([torch.neg(x2), x1], -1)

    def apply_rotary_pos_emb(self, q, k, cos, sin):
        cos = cos.unsqueeze(1)
        sin = sin.unsqueeze(1)
        q_embed = (q * cos) + (self.rotate_half(q) * sin)
        k_embed = (k * cos) + (self.rotate_half_2(k) * sin)
        return q_embed, k_embed

    def _is_packed_sequence(self, x):
        positions = torch.arange(256, device=device)
        least = torch.min(positions)
        increasing_position_sequences = positions + least
        del positions, least
        return torch.sum(torch.abs(increasing_position_sequences - increasing_position_sequences)).bool()

    def prepare_fa_kwargs_from_position_ids(self, x):
        indices_q = nonzero_count(torch.zeros(256, dtype=torch.bool, device=device), 6).view(-1)
        cu_seq_lens_q = torch.cat([indices_q.int(), torch.zeros(1, dtype=torch.int32, device=device)])
        max_length_q = torch.max(torch.diff(cu_seq_lens_q))
        return cu_seq_lens_q, max_length_q

    def _prepare_from_posids(self, query, key, value):
        query = query.contiguous().view(-1, 4, 16)
        key = key.contiguous().view(-1, 2, 16)
        value = value.contiguous().view(-1, 2, 16)
        cu_seq_lens, max_length = self.prepare_fa_kwargs_from_position_ids(value)
        return query, key, value, cu_seq_lens, cu_seq_lens, max_length, max_length

    def _flash_attention_forward(self, query_states, key_states, value_states, attention_mask):
        query_states = to_autocast(query_states)
        key_states = to_autocast(key_states)
        value_states = to_autocast(value_states)
        is_fa_with_position_ids = self._is_packed_sequence(value_states)
        q, k, v, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k = self._prepare_from_posids(query_states, key_states, value_states)
        out = FlashAttnVarlenFunc.apply(q, k, v, cu_seq_lens_q, cu_seq_lens_k, max_length_k)
        out = out.view(1, -1, 4, 16)
        return out

    def flash_attention_forward(self, query, key, value, attention_mask):
        query = query.transpose(1, 2)
        key = key.transpose(1, 2)
        value = value.transpose(1, 2)
        attn_output = self._flash_attention_forward(query, key, value, attention_mask)
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_proj(hidden_states).view(1, 256, -1, 16).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(1, 256, -1, 16).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(1, 256, -1, 16).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.flash_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(1, 256, -1).contiguous()
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
        packed_sequence_mask = self.find_packed_sequence_indices(position_ids)
        return attention_mask

    def flash_attention_mask(self, attention_mask):
        return None

    def mask_interface(self, inputs_embeds, attention_mask, block_sequence_ids):
        return self.flash_attention_mask(attention_mask)

    def create_causal_mask(self, inputs_embeds, attention_mask, position_ids):
        attention_mask = self.preprocess_mask_arguments(inputs_embeds, attention_mask, position_ids)
        causal_mask = self.mask_interface(inputs_embeds, attention_mask, None)
        return causal_mask

    def forward(self, input_ids, attention_mask, position_ids, inputs_embeds):
        inputs_embeds = self.embed_tokens(input_ids)
        inputs_embeds = inputs_embeds.requires_grad_()
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        kwargs_inputs_embeds = inputs_embeds
        kwargs_position_ids = position_ids
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

    def fixed_cross_entropy(self, source, target, num_items_in_batch):
        loss = F.cross_entropy(source, target, reduction="sum")
        loss = loss / num_items_in_batch
        return loss

    def ForCausalLMLoss(self, logits, labels, num_items_in_batch):
        logits = logits.float()
        labels = F.pad(labels, (0, 1), value=-100.0)
        shift_labels = labels[:, 1:].contiguous()
        logits = logits.view(-1, 512)
        shift_labels = shift_labels.view(-1)
        loss = self.fixed_cross_entropy(logits, shift_labels, num_items_in_batch)
        return loss

    def forward(self, input_ids, labels, position_ids, num_items_in_batch):
        outputs = self.model(input_ids, None, position_ids, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, 0:, :])
        loss = self.ForCausalLMLoss(logits, labels, num_items_in_batch)
        return outputs[0], logits, loss


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*bias*", "*layernorm*", "*.norm.*"], name)]},
    {"params": [p for name, p in model.named_parameters() if covers(["*bias*", "*layernorm*", "*.norm.*"], name)], "weight_decay": 0.0},
], lr=2e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(1, 256, dtype=torch.int64)
    position_ids = torch.zeros(1, 256, dtype=torch.int64)
    labels = torch.zeros(1, 256, dtype=torch.int64)
    return input_ids.to(device), position_ids.to(device), labels.to(device)


def entropy_from_logits(logits):
    flat_logits = logits.reshape(-1, 512)
    entropies = []
    chunk = flat_logits[0:128]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    chunk = flat_logits[128:255]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    entropies = torch.cat(entropies, 0)
    return entropies.reshape(1, 255)


def sft_metrics(outputs, labels, attention_mask):
    with torch.no_grad():
        shift_logits = outputs[1][..., :-1, :]
        shift_labels = labels[..., 1:]
        per_token_entropy = entropy_from_logits(shift_logits)
        predictions = torch.argmax(shift_logits, -1)
        mask = shift_labels != (-100)
        entropy_sum = torch.sum(per_token_entropy * mask)
        total_tokens = torch.sum(mask)
        correct_predictions = (predictions == shift_labels) & mask
        correct_tokens = torch.sum(correct_predictions)
        entropy_sum = torch.sum(entropy_sum)
        total_tokens = torch.sum(total_tokens)
        read = total_tokens > 0
        del read
        read = entropy_sum / total_tokens
        del read
        total_sum = torch.sum(total_tokens)
        read = total_sum > 0
        del read
        read = torch.sum(correct_tokens) / total_sum
        del read
    local_num_tokens = torch.zeros((), dtype=torch.int64, device=device)
    read = torch.sum(local_num_tokens)
    del read
    return None


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
    input_ids, position_ids, labels = batch_samples[0]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = model(input_ids, labels, position_ids, num_items_in_batch)
    outputs = (outputs[0], outputs[1].float(), outputs[2])
    loss = outputs[-1]
    loss *= 1
    _ = sft_metrics(outputs, labels, None)
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
    if i % 10 == 0:
        tr_loss_scalar = torch.mean(tr_loss)
        del tr_loss_scalar
        tr_loss -= tr_loss
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
