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


def _flash_attn3_mask(q, k, max_seqlen, causal, window, forward):
    """Whether a call is causal, and whether it sees a window alone, as flash_api.cpp takes it."""
    rows, keys = (max_seqlen, max_seqlen) if max_seqlen else (q.shape[1], k.shape[1])
    left, right = -1 if window >= keys - 1 else window, -1 if window >= rows - 1 else window
    if causal and (not forward or rows != 1 or left >= 0):
        right = 0
    causal = left < 0 and right == 0
    return causal, not causal and (left >= 0 or right >= 0)


def _flash_attn3_dense(x):
    return x.contiguous() if x.stride(-1) != 1 else x


def _flash_attn3_up(n, m):
    return -(n // -m) * m


def _flash_attn3_forward(q, k, v, cu_seqlens=None, max_seqlen=0, causal=False, window=-1, softcap=0.0):
    q, k, v = _flash_attn3_dense(q), _flash_attn3_dense(k), _flash_attn3_dense(v)
    causal, local = _flash_attn3_mask(q, k, max_seqlen, causal, window, True)
    apart = cu_seqlens is not None
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((q.shape[1], q.shape[0]) if apart else (q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32, device=q.device)
    counts = causal or local or apart if torch.cuda.get_device_capability(q.device) >= (9, 0) else causal and not apart
    if counts or apart:
        batch = cu_seqlens.numel() - 1 if apart else q.shape[0]
        vectors = 2 * apart + (not local) + (causal or local)
        tile_count_semaphore = torch.empty(_flash_attn3_up(batch, 4) * vectors + counts, dtype=torch.int32, device=q.device)
    return out, lse


def _flash_attn3_blocks(q, d, causal, local, softcap):
    """How many rows of queries and of keys a block of the backward kernel has."""
    arch = torch.cuda.get_device_capability(q.device)
    if arch >= (9, 0):
        if d <= 64:
            return 96 if causal and softcap > 0 else 128, 128
        if d == 128:
            return 64 if causal or local or softcap > 0 else 80, 128
        return 64, 128 if d <= 96 else 96 if d <= 192 else 80
    if arch in ((8, 6), (8, 9)):
        return 64 if d <= 192 else 32, 128 if d <= 96 else 96 if d <= 128 else 64
    return 128 if d <= 64 else 64, 128 if d <= 128 else 80 if d <= 192 else 64


def _flash_attn3_backward(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens=None, max_seqlen=0, causal=False, window=-1, softcap=0.0
):
    dout, q, k, v, out = (_flash_attn3_dense(x) for x in (dout, q, k, v, out))
    causal, local = _flash_attn3_mask(q, k, max_seqlen, causal, window, False)
    heads, shared, d = q.shape[-2], k.shape[-2], next(n for n in (64, 96, 128, 192, 256) if q.shape[-1] <= n)
    m, n = _flash_attn3_blocks(q, d, causal, local, softcap)
    if cu_seqlens is not None:
        batch = cu_seqlens.numel() - 1
        rows, keys = _flash_attn3_up(q.shape[0] + batch * m, m), _flash_attn3_up(k.shape[0] + batch * n, n)
    else:
        batch, max_seqlen = q.shape[0], q.shape[1]
        rows, keys = batch * _flash_attn3_up(q.shape[1], m), batch * _flash_attn3_up(k.shape[1], n)
    softmax_d, softmax_lse_log2, dq_accum = (torch.empty(n, device=q.device) for n in (heads * rows, heads * rows, heads * rows * d))
    if shared != heads:
        dk_accum, dv_accum = torch.zeros(shared * keys * d, device=q.device), torch.zeros(shared * keys * d, device=q.device)
    dq_semaphore = torch.empty(-(max_seqlen // -m), batch, heads, dtype=torch.int32, device=q.device)
    dq_semaphore = dv_accum = dk_accum = dq_accum = softmax_lse_log2 = None
    return softmax_d


def nonzero_count(input, count):
    """torch.nonzero of data of which so many elements are not zero; all elements of a script's data are."""
    input.view(-1)[:count].fill_(1)
    return torch.nonzero(input)


def to_autocast(input):
    return input.to(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else input


class LlamaRMSNorm2(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(128))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaRMSNorm3(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(128))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class FlashAttn3VarlenFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
        out, softmax_lse = _flash_attn3_forward(q, k, v, cu_seqlens_q, 39, True, -1, 0.0)
        ctx.save_for_backward(q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k)
        ctx.max_seqlen_q = max_seqlen_q
        ctx.max_seqlen_k = max_seqlen_k
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k = ctx.saved_tensors
        max_seqlen_q = ctx.max_seqlen_q
        max_seqlen_k = ctx.max_seqlen_k
        dq = torch.empty_like(q)
        dk = torch.empty_like(k)
        dv = torch.empty_like(v)
        softmax_d = _flash_attn3_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, 39, True, -1, 0.0)
        del softmax_d
        return dq[..., :128], dk[..., :128], dv[..., :128], None, None, None, None


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 512, bias=False)
        self.k_proj = nn.Linear(64, 256, bias=False)
        self.v_proj = nn.Linear(64, 256, bias=False)
        self.o_proj = nn.Linear(512, 64, bias=False)
        self.q_norm = LlamaRMSNorm2()
        self.k_norm = LlamaRMSNorm3()

    def rotate_half(self, x):
        x1 = x[..., :64]
        x2 = x[..., 64:]
        return torch.cat([torch.neg(x2), x1], -1)

    def rotate_half_2(self, x):
        x1 = x[..., :64]
        x2 = x[..., 64:]
        return torch.cat([torch.neg(x2), x1], -1)

    def apply_rotary_pos_emb(self, q, k, cos, sin):
        cos = cos.unsqueeze(1)
        sin = sin.unsqueeze(1)
        q_embed = (q * cos) + (self.rotate_half(q) * sin)
        k_embed = (k * cos) + (self.rotate_half_2(k) * sin)
        return q_embed, k_embed

    def _is_packed_sequence(self, x):
        positions = torch.arange(192, device=device)
        least = torch.min(positions)
        increasing_position_sequences = positions + least
        del positions, least
        return torch.sum(torch.abs(increasing_position_sequences - increasing_position_sequences)).bool()

    def prepare_fa_kwargs_from_position_ids(self, x):
        indices_q = nonzero_count(torch.zeros(192, dtype=torch.bool, device=device), 5).view(-1)
        cu_seq_lens_q = torch.cat([indices_q.int(), torch.zeros(1, dtype=torch.int32, device=device)])
        max_length_q = torch.max(torch.diff(cu_seq_lens_q))
        return cu_seq_lens_q, max_length_q

    def _prepare_from_posids(self, query, key, value):
        query = query.contiguous().view(-1, 4, 128)
        key = key.contiguous().view(-1, 2, 128)
        value = value.contiguous().view(-1, 2, 128)
        cu_seq_lens, max_length = self.prepare_fa_kwargs_from_position_ids(value)
        return query, key, value, cu_seq_lens, cu_seq_lens, max_length, max_length

    def _flash_attention_forward(self, query_states, key_states, value_states, attention_mask):
        query_states = to_autocast(query_states)
        key_states = to_autocast(key_states)
        value_states = to_autocast(value_states)
        is_fa_with_position_ids = self._is_packed_sequence(value_states)
        q, k, v, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k = self._prepare_from_posids(query_states, key_states, value_states)
        out = FlashAttn3VarlenFunc.apply(q, k, v, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
        out = out.view(1, -1, 4, 128)
        return out

    def flash_attention_forward(self, query, key, value, attention_mask):
        query = query.transpose(1, 2)
        key = key.transpose(1, 2)
        value = value.transpose(1, 2)
        attn_output = self._flash_attention_forward(query, key, value, attention_mask)
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_norm(self.q_proj(hidden_states).view(1, 192, -1, 128)).transpose(1, 2)
        key_states = self.k_norm(self.k_proj(hidden_states).view(1, 192, -1, 128)).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(1, 192, -1, 128).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.flash_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(1, 192, -1).contiguous()
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
        self.register_buffer("inv_freq", torch.zeros(64), persistent=False)
        self.register_buffer("original_inv_freq", torch.zeros(64), persistent=False)

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

    def chunk_of_logits(self, h, w, b, lbl):
        logits = h.float() @ w.float().transpose(0, 1)
        log_p = F.log_softmax(logits, -1)
        chunk_loss = F.nll_loss(log_p, lbl, reduction="sum")
        valid = lbl != (-100)
        chunk_correct = torch.sum((torch.argmax(logits, -1) == lbl) & valid).float()
        chunk_entropy = torch.sum(torch.neg(torch.sum(torch.exp(log_p) * log_p, (-1,))) * valid)
        return chunk_loss, chunk_correct, chunk_entropy

    def chunked_cross_entropy_loss(self, hidden_states, lm_head_weight, lm_head_bias, labels, num_items_in_batch):
        hidden = hidden_states[..., :-1, :].reshape(-1, 64)
        labels = labels[..., 1:].reshape(-1)
        valid = labels != (-100)
        n_valid = torch.sum(valid)
        correct = torch.zeros((), device=device)
        entropy_sum = torch.zeros((), device=device)
        none_valid = n_valid == 0
        del none_valid
        order = torch.argsort(valid.to(torch.int8), descending=True)
        hidden = hidden[order]
        labels = labels[order]
        n_padded = torch.ceil(n_valid / 256).to(torch.int64) * 256
        loss = torch.zeros((), device=device)
        h_chunk = hidden[0:191]
        lbl_chunk = labels[0:191]
        chunk_loss, chunk_correct, chunk_entropy = torch.utils.checkpoint.checkpoint(self.chunk_of_logits, h_chunk, lm_head_weight, lm_head_bias, lbl_chunk, use_reentrant=False)
        loss = loss + chunk_loss
        correct = correct + chunk_correct
        entropy_sum = entropy_sum + chunk_entropy
        loss = loss / num_items_in_batch
        return loss, correct, entropy_sum, n_valid

    def forward(self, input_ids, labels, position_ids, num_items_in_batch):
        outputs = self.model(input_ids, None, position_ids, None)
        hidden_states = outputs[1]
        loss, num_correct_tokens, entropy_sum, num_valid_tokens = self.chunked_cross_entropy_loss(hidden_states, self.lm_head.weight, None, labels, num_items_in_batch)
        return num_valid_tokens, entropy_sum, num_correct_tokens, outputs[0], loss


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*layernorm*", "*.norm.*", "*_norm.*"], name)]},
    {"params": [p for name, p in model.named_parameters() if covers(["*layernorm*", "*.norm.*", "*_norm.*"], name)], "weight_decay": 0.0},
], lr=2e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(1, 192, dtype=torch.int64)
    position_ids = torch.zeros(1, 192, dtype=torch.int64)
    labels = torch.zeros(1, 192, dtype=torch.int64)
    return input_ids.to(device), position_ids.to(device), labels.to(device)


def sft_chunked_metrics(outputs, labels, attention_mask):
    num_valid = torch.sum(outputs[0])
    entropy_sum = torch.sum(outputs[1])
    read = num_valid > 0
    del read
    read = entropy_sum / num_valid
    del read
    local_num_tokens = torch.zeros((), dtype=torch.int64, device=device)
    read = torch.sum(local_num_tokens)
    del read
    correct = torch.sum(outputs[2])
    read = num_valid > 0
    del read
    read = correct / num_valid
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
    outputs = (outputs[0], outputs[1], outputs[2], outputs[3], outputs[4])
    loss = outputs[-1]
    loss *= 1
    _ = sft_chunked_metrics(outputs, labels, None)
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
