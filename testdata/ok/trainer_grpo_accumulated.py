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


class Conv1D(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 192))
        self.bias = nn.Parameter(torch.zeros(192))

    def forward(self, x):
        x = torch.addmm(self.bias, x.view(-1, 64), self.weight)
        x = x.view(2, 32, 192)
        return x


class Conv1D2(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 64))
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        x = torch.addmm(self.bias, x.view(-1, 64), self.weight)
        x = x.view(2, 32, 64)
        return x


class GPT2Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = Conv1D()
        self.c_proj = Conv1D2()
        self.resid_dropout = nn.Dropout(p=0.1)

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1 if self.training else 0.0, is_causal=True, scale=0.17677669529663687, enable_gqa=False)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, attention_mask):
        query_states, key_states, value_states = self.c_attn(hidden_states).split(64, 2)
        key_states = key_states.view(2, 32, -1, 32).transpose(1, 2)
        value_states = value_states.view(2, 32, -1, 32).transpose(1, 2)
        query_states = query_states.view(2, 32, -1, 32).transpose(1, 2)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(2, 32, -1).contiguous()
        attn_output = self.c_proj(attn_output)
        attn_output = self.resid_dropout(attn_output)
        return attn_output, attn_weights


class Conv1D3(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 256))
        self.bias = nn.Parameter(torch.zeros(256))

    def forward(self, x):
        x = torch.addmm(self.bias, x.view(-1, 64), self.weight)
        x = x.view(2, 32, 256)
        return x


class Conv1D4(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(256, 64))
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        x = torch.addmm(self.bias, x.view(-1, 256), self.weight)
        x = x.view(2, 32, 64)
        return x


class ActGeluNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return (x * 0.5) * (torch.tanh((x + (torch.pow(x, 3.0) * 0.044715)) * 0.7978845608) + 1.0)


class GPT2MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D3()
        self.c_proj = Conv1D4()
        self.act = ActGeluNew()
        self.dropout = nn.Dropout(p=0.1)

    def forward(self, hidden_states):
        hidden_states = self.c_fc(hidden_states)
        hidden_states = self.act(hidden_states)
        hidden_states = self.c_proj(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return hidden_states


class GPT2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(64, eps=1e-05)
        self.attn = GPT2Attention()
        self.ln_2 = nn.LayerNorm(64, eps=1e-05)
        self.mlp = GPT2MLP()

    def forward(self, hidden_states, attention_mask, position_ids):
        residual = hidden_states
        hidden_states = self.ln_1(hidden_states)
        attn_output, _ = self.attn(hidden_states, attention_mask)
        hidden_states = attn_output + residual
        residual = hidden_states
        hidden_states = self.ln_2(hidden_states)
        feed_forward_hidden_states = self.mlp(hidden_states)
        hidden_states = residual + feed_forward_hidden_states
        return hidden_states


class GPT2Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(512, 64)
        self.wpe = nn.Embedding(64, 64)
        self.drop = nn.Dropout(p=0.1)
        self.h = nn.ModuleList([GPT2Block()])
        self.ln_f = nn.LayerNorm(64, eps=1e-05)

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
        input_ids = input_ids.view(-1, 32)
        inputs_embeds = self.wte(input_ids)
        inputs_embeds = inputs_embeds.requires_grad_()
        position_ids = torch.arange(32, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        position_embeds = self.wpe(position_ids)
        hidden_states = inputs_embeds + position_embeds
        attention_mask = attention_mask.view(2, -1)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = self.drop(hidden_states)
        hidden_states = torch.utils.checkpoint.checkpoint(functools.partial(self.h[0], position_ids=position_ids), hidden_states, layer_mask, use_reentrant=False)
        hidden_states = self.ln_f(hidden_states)
        hidden_states = hidden_states.view(-1, 32, 64)
        return None, hidden_states


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = GPT2Model()
        self.lm_head = nn.Linear(64, 512, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids, labels, attention_mask):
        outputs = self.transformer(input_ids, attention_mask, None, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, -9:, :])
        return outputs[0], logits, None


device = torch.device("cuda")
model = Model().to(device)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*bias*", "transformer.h.*.ln_1", "transformer.h.*.ln_2", "transformer.ln_f"], name)]},
    {"params": [p for name, p in model.named_parameters() if covers(["*bias*", "transformer.h.*.ln_1", "transformer.h.*.ln_2", "transformer.ln_f"], name)], "weight_decay": 0.0},
], lr=1e-06, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(2, 32, dtype=torch.int64)
    attention_mask = torch.zeros(2, 32, dtype=torch.int64)
    labels = torch.zeros(2, 32, dtype=torch.int64)
    return input_ids.to(device), attention_mask.to(device), labels.to(device)


def generate_and_score(x):
    prompt_ids = torch.zeros(4, 24, dtype=torch.int64, device=device)
    prompt_mask = torch.zeros(4, 24, dtype=torch.int64, device=device)
    completion_ids = torch.zeros(4, 8, dtype=torch.int64, device=device)
    completion_mask = torch.zeros(4, 8, dtype=torch.int64, device=device)
    num_items_in_batch = torch.sum(torch.sum(completion_mask))
    prompt_completion_ids = torch.cat([prompt_ids, completion_ids], 1)
    attention_mask = torch.cat([prompt_mask, completion_mask], 1)
    advantages = torch.zeros(4, device=device)
    return prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items_in_batch, None, None


def shuffled(v):
    permutation = torch.zeros(4, dtype=torch.int64, device=device)
    return v[permutation]


def shuffled_2(v):
    permutation = torch.zeros(4, dtype=torch.int64, device=device)
    return v[permutation]


def shuffled_3(v):
    permutation = torch.zeros(4, dtype=torch.int64, device=device)
    return v[permutation]


def generate(x):
    prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_made, ref_logps_made = generate_and_score(x)
    a = shuffled(prompt_ids)
    b = shuffled(prompt_mask)
    c = shuffled_2(completion_ids)
    d = shuffled_2(completion_mask)
    e = shuffled_3(advantages)
    return a, b, c, d, e, num_items, None, None


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


def entropy_from_logits(logits):
    flat_logits = logits.reshape(-1, 512)
    entropies = []
    chunk = flat_logits[0:16]
    logps = F.log_softmax(chunk, -1)
    chunk_entropy = torch.neg(torch.sum(torch.exp(logps) * logps, (-1,)))
    entropies.append(chunk_entropy)
    entropies = torch.cat(entropies, 0)
    return entropies.reshape(2, 8)


def per_token_logps(input_ids, attention_mask):
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


def global_masked_mean_2(x, mask):
    local_sum = torch.sum(x)
    local_count = torch.zeros((), device=device)
    totals = torch.clone(torch.stack([local_sum, local_count]))
    read = totals.select(0, 0) / torch.clamp(totals.select(0, 1), 1.0)
    del read
    return None


def masked_seq_mean(x, mask):
    return x.squeeze((1,))


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
    input_ids = torch.cat([prompt_ids, completion_ids], 1)
    attention_mask = torch.cat([prompt_mask, mask], 1)
    per_token_logps_, entropies = per_token_logps(input_ids, attention_mask)
    advantages = advantages.unsqueeze(1)
    old_per_token_logps = per_token_logps_.detach()
    log_ratio = per_token_logps_ - old_per_token_logps
    log_importance_weights = torch.sum(log_ratio * mask, (-1,)) / torch.clamp(torch.sum(mask, (-1,)), 1.0)
    log_importance_weights = log_importance_weights.unsqueeze(-1)
    coef_1 = torch.exp(log_importance_weights)
    per_token_loss = None
    coef_2 = torch.clamp(coef_1, 0.8, 1.2)
    coef_1 = torch.clamp(coef_1, max=1.5)
    per_token_loss1 = coef_1 * advantages
    per_token_loss2 = coef_2 * advantages
    per_token_loss = torch.neg(torch.minimum(per_token_loss1, per_token_loss2))
    loss = torch.mean(per_token_loss * torch.sum(mask, (1,), True))
    policy_loss = loss.detach()
    loss = loss / 4
    _ = global_masked_mean(entropies, mask)
    is_low_clipped = (coef_1 < 0.8) & (advantages < 0)
    is_high_clipped = (coef_1 > 1.2) & (advantages > 0)
    is_region_clipped = is_low_clipped | is_high_clipped
    _ = global_masked_mean_2(is_low_clipped.float(), mask)
    _ = global_masked_mean_2(is_high_clipped.float(), mask)
    _ = global_masked_mean_2(is_region_clipped.float(), mask)
    gathered_low_clip = masked_seq_mean(is_low_clipped.float(), mask)
    read = nan_extreme(gathered_low_clip)
    del read
    gathered_high_clip = masked_seq_mean(is_high_clipped.float(), mask)
    read = nan_extreme(gathered_high_clip)
    del read
    return loss


def grpo_loss_2(prompt_ids, prompt_mask, completion_ids, mask, advantages, num_items_in_batch, old_logps_of, ref_logps_of):
    prompt_ids = prompt_ids[2:4]
    prompt_mask = prompt_mask[2:4]
    completion_ids = completion_ids[2:4]
    mask = mask[2:4]
    advantages = advantages[2:4]
    input_ids = torch.cat([prompt_ids, completion_ids], 1)
    attention_mask = torch.cat([prompt_mask, mask], 1)
    per_token_logps_, entropies = per_token_logps(input_ids, attention_mask)
    advantages = advantages.unsqueeze(1)
    old_per_token_logps = per_token_logps_.detach()
    log_ratio = per_token_logps_ - old_per_token_logps
    log_importance_weights = torch.sum(log_ratio * mask, (-1,)) / torch.clamp(torch.sum(mask, (-1,)), 1.0)
    log_importance_weights = log_importance_weights.unsqueeze(-1)
    coef_1 = torch.exp(log_importance_weights)
    per_token_loss = None
    coef_2 = torch.clamp(coef_1, 0.8, 1.2)
    coef_1 = torch.clamp(coef_1, max=1.5)
    per_token_loss1 = coef_1 * advantages
    per_token_loss2 = coef_2 * advantages
    per_token_loss = torch.neg(torch.minimum(per_token_loss1, per_token_loss2))
    loss = torch.mean(per_token_loss * torch.sum(mask, (1,), True))
    policy_loss = loss.detach()
    loss = loss / 4
    _ = global_masked_mean(entropies, mask)
    is_low_clipped = (coef_1 < 0.8) & (advantages < 0)
    is_high_clipped = (coef_1 > 1.2) & (advantages > 0)
    is_region_clipped = is_low_clipped | is_high_clipped
    _ = global_masked_mean_2(is_low_clipped.float(), mask)
    _ = global_masked_mean_2(is_high_clipped.float(), mask)
    _ = global_masked_mean_2(is_region_clipped.float(), mask)
    gathered_low_clip = masked_seq_mean(is_low_clipped.float(), mask)
    read = nan_extreme(gathered_low_clip)
    del read
    gathered_high_clip = masked_seq_mean(is_high_clipped.float(), mask)
    read = nan_extreme(gathered_high_clip)
    del read
    return loss


torch.cuda.empty_cache()
tr_loss = torch.zeros((), device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of = generate(tr_loss)
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
    loss = grpo_loss_2(prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of)
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
    prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of = generate(tr_loss)
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
    loss = grpo_loss_2(prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, num_items, old_logps_of, ref_logps_of)
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
