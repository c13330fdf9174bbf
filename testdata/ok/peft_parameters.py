"a model: a training step, written by memplan export torch."
import contextlib
import copy
import fnmatch
import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


def launch(output, kernel):
    """A kernel of another library, which writes into a tensor: what it computes is left out."""
    return output


class LlamaRMSNorm2(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaRMSNorm3(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 64, bias=False)
        self.k_proj = nn.Linear(64, 32, bias=False)
        self.v_proj = nn.Linear(64, 32, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)
        self.q_norm = LlamaRMSNorm2()
        self.k_norm = LlamaRMSNorm3()

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

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.0 if self.training else 0.0, is_causal=True, scale=0.25, enable_gqa=True)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_norm(self.q_proj(hidden_states).view(2, 32, -1, 16)).transpose(1, 2)
        key_states = self.k_norm(self.k_proj(hidden_states).view(2, 32, -1, 16)).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(2, 32, -1, 16).transpose(1, 2)
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


class GroupedMmFallback(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, offs):
        output = torch.zeros(128, 96, dtype=torch.bfloat16, device=device)
        ctx.save_for_backward(input, weight)
        ctx.offs = offs
        return launch(output, "grouped_mm_fallback")

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        offs = ctx.offs
        grad_input = torch.zeros_like(input)
        grad_weight = torch.zeros_like(weight)
        return grad_input, grad_weight, None


class GroupedMmFallback2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, offs):
        output = torch.zeros(128, 64, dtype=torch.bfloat16, device=device)
        ctx.save_for_backward(input, weight)
        ctx.offs_ = offs
        return launch(output, "grouped_mm_fallback")

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        offs = ctx.offs_
        grad_input = torch.zeros_like(input)
        grad_weight = torch.zeros_like(weight)
        return grad_input, grad_weight, None


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 96, 64))
        self.down_proj = nn.Parameter(torch.randn(4, 64, 48))
        self.act_fn = ActSilu()

    def _grouped_mm(self, input, weight, offs):
        return GroupedMmFallback.apply(input, weight, offs)

    def grouped_linear(self, input, weight, offs, bias):
        out = self._grouped_mm(input, weight.transpose(-2, -1), offs)
        return out

    def apply_gate(self, gate_up_out):
        gate, up = gate_up_out.chunk(2, -1)
        return self.act_fn(gate) * up

    def _grouped_mm_2(self, input, weight, offs):
        return GroupedMmFallback2.apply(input, weight, offs)

    def grouped_linear_2(self, input, weight, offs, bias):
        out = self._grouped_mm_2(input, weight.transpose(-2, -1), offs)
        return out

    def forward(self, hidden_states, top_k_index, top_k_weights):
        sample_weights = top_k_weights.reshape(-1)
        expert_ids = top_k_index.reshape(-1)
        expert_ids_g, perm = torch.sort(expert_ids)
        selected_hidden_states_g = hidden_states[perm // 2]
        sample_weights_g = sample_weights[perm]
        histc_input = expert_ids_g.int()
        tokens_per_expert = torch.histc(histc_input, 4, 0.0, 3.0)
        offsets = torch.cumsum(tokens_per_expert, 0, dtype=torch.int32)
        sentinel_mask = (expert_ids_g >= 4).unsqueeze(-1)
        selected_weights = self.gate_up_proj
        selected_biases = None
        selected_hidden_states_g = selected_hidden_states_g.masked_fill_(sentinel_mask, 0.0)
        proj_out = self.grouped_linear(selected_hidden_states_g, selected_weights, offsets, selected_biases)
        proj_out = self.apply_gate(proj_out)
        selected_weights = self.down_proj
        proj_out = self.grouped_linear_2(proj_out, selected_weights, offsets, selected_biases)
        weighted_out = proj_out * sample_weights_g.unsqueeze(-1)
        weighted_out = weighted_out.masked_fill_(sentinel_mask, 0.0)
        inv_perm = torch.zeros_like(perm)
        places = torch.arange(128, device=device)
        inv_perm = inv_perm.scatter_(0, perm, places)
        del places
        weighted_out = weighted_out[inv_perm]
        final_hidden_states = torch.sum(weighted_out.view(64, 2, 64), (1,))
        return final_hidden_states.type_as(hidden_states)


class TopKRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 64))

    def forward(self, hidden_states):
        hidden_states = hidden_states.reshape(-1, 64)
        router_logits = F.linear(hidden_states, self.weight)
        router_probs = F.softmax(router_logits, -1, dtype=torch.float32)
        router_top_value, router_indices = torch.topk(router_probs, 2, -1)
        router_top_value = router_top_value.type_as(router_logits)
        router_scores = router_top_value
        return router_logits, router_scores, router_indices


class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts()
        self.gate = TopKRouter()

    def forward(self, hidden_states):
        hidden_states_reshaped = hidden_states.view(-1, 64)
        _, routing_weights, selected_experts = self.gate(hidden_states_reshaped)
        final_hidden_states = self.experts(hidden_states_reshaped, selected_experts, routing_weights)
        return final_hidden_states.reshape(2, 32, 64)


class LlamaRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()
        self.mlp = Qwen3MoeSparseMoeBlock()
        self.input_layernorm = LlamaRMSNorm()
        self.post_attention_layernorm = LlamaRMSNorm()

    def forward(self, hidden_states, attention_mask, position_ids, position_embeddings):
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
        self.embed_tokens = nn.Embedding(256, 64, padding_idx=None)
        self.layers = nn.ModuleList([DecoderLayer(), DecoderLayer()])
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
        position_ids = torch.arange(32, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = self.layers[0](hidden_states, attention_mask=layer_mask, position_ids=position_ids, position_embeddings=position_embeddings)
        hidden_states = self.layers[1](hidden_states, attention_mask=layer_mask, position_ids=position_ids, position_embeddings=position_embeddings)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(64, 256, bias=False)

    def fixed_cross_entropy(self, source, target, num_items_in_batch):
        loss = F.cross_entropy(source, target, reduction="sum")
        loss = loss / num_items_in_batch
        return loss

    def ForCausalLMLoss(self, logits, labels, num_items_in_batch):
        logits = logits.float()
        labels = F.pad(labels, (0, 1), value=-100.0)
        shift_labels = labels[:, 1:].contiguous()
        logits = logits.view(-1, 256)
        shift_labels = shift_labels.view(-1)
        loss = self.fixed_cross_entropy(logits, shift_labels, num_items_in_batch)
        return loss

    def forward(self, input_ids, labels, num_items_in_batch):
        outputs = self.model(input_ids, None, None, None)
        hidden_states = outputs[1]
        logits = self.lm_head(hidden_states[:, 0:, :])
        loss = self.ForCausalLMLoss(logits, labels, num_items_in_batch)
        return outputs[0], logits, loss


class LlamaRMSNorm5(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaRMSNorm6(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class LlamaAttention2(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 64, bias=False)
        self.k_proj = nn.Linear(64, 32, bias=False)
        self.v_proj = nn.Linear(64, 32, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)
        self.q_norm = LlamaRMSNorm5()
        self.k_norm = LlamaRMSNorm6()

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

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.0 if self.training else 0.0, is_causal=True, scale=0.25, enable_gqa=True)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_norm(self.q_proj(hidden_states).view(4, 32, -1, 16)).transpose(1, 2)
        key_states = self.k_norm(self.k_proj(hidden_states).view(4, 32, -1, 16)).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(4, 32, -1, 16).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.apply_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(4, 32, -1).contiguous()
        attn_output = self.o_proj(attn_output)
        return attn_output, attn_weights


class ActSilu2(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.silu(x)


class GroupedMmFallback3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, offs):
        output = torch.zeros(256, 96, dtype=torch.bfloat16, device=device)
        ctx.save_for_backward(input, weight)
        ctx.offs__ = offs
        return launch(output, "grouped_mm_fallback")

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        offs = ctx.offs__
        grad_input = torch.zeros_like(input)
        grad_weight = torch.zeros_like(weight)
        return grad_input, grad_weight, None


class GroupedMmFallback4(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, offs):
        output = torch.zeros(256, 64, dtype=torch.bfloat16, device=device)
        ctx.save_for_backward(input, weight)
        ctx.offs___ = offs
        return launch(output, "grouped_mm_fallback")

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        offs = ctx.offs___
        grad_input = torch.zeros_like(input)
        grad_weight = torch.zeros_like(weight)
        return grad_input, grad_weight, None


class Experts2(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 96, 64))
        self.down_proj = nn.Parameter(torch.randn(4, 64, 48))
        self.act_fn = ActSilu2()

    def _grouped_mm(self, input, weight, offs):
        return GroupedMmFallback3.apply(input, weight, offs)

    def grouped_linear(self, input, weight, offs, bias):
        out = self._grouped_mm(input, weight.transpose(-2, -1), offs)
        return out

    def apply_gate(self, gate_up_out):
        gate, up = gate_up_out.chunk(2, -1)
        return self.act_fn(gate) * up

    def _grouped_mm_2(self, input, weight, offs):
        return GroupedMmFallback4.apply(input, weight, offs)

    def grouped_linear_2(self, input, weight, offs, bias):
        out = self._grouped_mm_2(input, weight.transpose(-2, -1), offs)
        return out

    def forward(self, hidden_states, top_k_index, top_k_weights):
        sample_weights = top_k_weights.reshape(-1)
        expert_ids = top_k_index.reshape(-1)
        expert_ids_g, perm = torch.sort(expert_ids)
        selected_hidden_states_g = hidden_states[perm // 2]
        sample_weights_g = sample_weights[perm]
        histc_input = expert_ids_g.int()
        tokens_per_expert = torch.histc(histc_input, 4, 0.0, 3.0)
        offsets = torch.cumsum(tokens_per_expert, 0, dtype=torch.int32)
        sentinel_mask = (expert_ids_g >= 4).unsqueeze(-1)
        selected_weights = self.gate_up_proj
        selected_biases = None
        selected_hidden_states_g = selected_hidden_states_g.masked_fill_(sentinel_mask, 0.0)
        proj_out = self.grouped_linear(selected_hidden_states_g, selected_weights, offsets, selected_biases)
        proj_out = self.apply_gate(proj_out)
        selected_weights = self.down_proj
        proj_out = self.grouped_linear_2(proj_out, selected_weights, offsets, selected_biases)
        weighted_out = proj_out * sample_weights_g.unsqueeze(-1)
        weighted_out = weighted_out.masked_fill_(sentinel_mask, 0.0)
        inv_perm = torch.zeros_like(perm)
        places = torch.arange(256, device=device)
        inv_perm = inv_perm.scatter_(0, perm, places)
        del places
        weighted_out = weighted_out[inv_perm]
        final_hidden_states = torch.sum(weighted_out.view(128, 2, 64), (1,))
        return final_hidden_states.type_as(hidden_states)


class TopKRouter2(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 64))

    def forward(self, hidden_states):
        hidden_states = hidden_states.reshape(-1, 64)
        router_logits = F.linear(hidden_states, self.weight)
        router_probs = F.softmax(router_logits, -1, dtype=torch.float32)
        router_top_value, router_indices = torch.topk(router_probs, 2, -1)
        router_top_value = router_top_value.type_as(router_logits)
        router_scores = router_top_value
        return router_logits, router_scores, router_indices


class Qwen3MoeSparseMoeBlock2(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts2()
        self.gate = TopKRouter2()

    def forward(self, hidden_states):
        hidden_states_reshaped = hidden_states.view(-1, 64)
        _, routing_weights, selected_experts = self.gate(hidden_states_reshaped)
        final_hidden_states = self.experts(hidden_states_reshaped, selected_experts, routing_weights)
        return final_hidden_states.reshape(4, 32, 64)


class LlamaRMSNorm4(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        converted = hidden_states.to(torch.float32)
        variance = torch.mean(torch.pow(converted, 2), (-1,), True)
        converted = converted * torch.rsqrt(variance + 1e-06)
        return self.weight * converted.type_as(hidden_states)


class DecoderLayer2(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention2()
        self.mlp = Qwen3MoeSparseMoeBlock2()
        self.input_layernorm = LlamaRMSNorm4()
        self.post_attention_layernorm = LlamaRMSNorm4()

    def forward(self, hidden_states, attention_mask, position_ids, position_embeddings):
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
        self.embed_tokens = nn.Embedding(256, 64, padding_idx=None)
        self.layers = nn.ModuleList([DecoderLayer2(), DecoderLayer2()])
        self.norm = LlamaRMSNorm4()
        self.rotary_emb = RotaryEmbedding2()

    def find_packed_sequence_indices(self, position_ids):
        first_dummy_value = position_ids[:, :1] - 1
        position_diff = torch.diff(position_ids, dim=-1, prepend=first_dummy_value)
        packed_sequence_mask = torch.cumsum(position_diff != 1, -1)
        packed = torch.all(packed_sequence_mask[:, -1] == 0)
        del packed
        return None

    def preprocess_mask_arguments(self, inputs_embeds, attention_mask, position_ids):
        position_ids = position_ids.expand(4, -1)
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
        position_ids = torch.arange(32, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = self.layers[0](hidden_states, attention_mask=layer_mask, position_ids=position_ids, position_embeddings=position_embeddings)
        hidden_states = self.layers[1](hidden_states, attention_mask=layer_mask, position_ids=position_ids, position_embeddings=position_embeddings)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class Model2(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel2()
        self.lm_head = nn.Linear(64, 256, bias=False)

    def fixed_cross_entropy(self, source, target, num_items_in_batch):
        loss = F.cross_entropy(source, target, reduction="sum")
        loss = loss / num_items_in_batch
        return loss

    def ForCausalLMLoss(self, logits, labels, num_items_in_batch):
        logits = logits.float()
        labels = F.pad(labels, (0, 1), value=-100.0)
        shift_labels = labels[:, 1:].contiguous()
        logits = logits.view(-1, 256)
        shift_labels = shift_labels.view(-1)
        loss = self.fixed_cross_entropy(logits, shift_labels, num_items_in_batch)
        return loss

    def forward(self, input_ids, labels, num_items_in_batch):
        outputs = self.model(input_ids, None, None, None)
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


class ParameterProxy(nn.Module):
    """What stands for a parameter that has an adapter while its module runs."""

    def __init__(self, delta_weight):
        super().__init__()
        self.delta_weight = delta_weight

    def forward(self, weight):
        return weight + self.delta_weight


class LoraParameter(Adapter):
    """A module with an adapter of one of its parameters, as PEFT's ParamWrapper."""

    def __init__(self, base_layer, name, r, alpha, rslora=False, transposed=False):
        super().__init__(base_layer)
        self.name, self.transposed = name, transposed
        self.scaling = alpha / (math.sqrt(r) if rslora else r)
        size = self.parameter().shape
        self.experts = size[0] if len(size) == 3 else 1
        out_features, in_features = (size[-1], size[-2]) if transposed else (size[-2], size[-1])
        self.lora_A = nn.Linear(in_features, r * self.experts, bias=False)
        self.lora_B = nn.Linear(r * self.experts, out_features, bias=False)

    def module(self):
        module = self.base_layer
        while isinstance(module, LoraParameter):
            module = module.base_layer
        return module

    def parameter(self):
        return getattr(self.module(), self.name)

    def get_delta_weight(self):
        weight_A, weight_B = self.lora_A.weight, self.lora_B.weight
        if self.experts == 1:
            delta_weight = weight_B @ weight_A * self.scaling
        else:
            weight_A = weight_A.reshape(self.experts, -1, weight_A.shape[-1])
            weight_B = weight_B.reshape(weight_B.shape[0], -1, self.experts)
            delta_weight = torch.einsum("o r e, e r i -> e i o" if self.transposed else "o r e, e r i -> e o i", weight_B, weight_A) * self.scaling
        param = self.parameter()
        delta_weight = delta_weight.to(param.device, param.dtype)
        return delta_weight

    @contextlib.contextmanager
    def active(self):
        delta_weight = self.get_delta_weight()
        module = self.module()
        parametrize.register_parametrization(module, self.name, ParameterProxy(delta_weight))
        module.parametrizations[self.name].original.requires_grad_(False)
        try:
            with parametrize.cached():
                yield
        finally:
            parametrize.remove_parametrizations(module, self.name, leave_parametrized=False)

    def forward(self, *args):
        with self.active():
            result = self.base_layer(*args)
        return result


def lora_parameters(layer, *parameters):
    """The wrappers of several parameters of a module, one around another."""
    for name, kwargs in parameters:
        layer = LoraParameter(layer, name, **kwargs)
    return layer


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


def share(model, like):
    """Gives a model the tensors of one that is made like it, and the layers that were changed there."""
    model._parameters, model._buffers = like._parameters, like._buffers
    for name in model._modules.keys() & like._modules.keys():
        module = like._modules[name]
        if isinstance(module, Adapter):
            around = [module]
            while isinstance(around[-1].base_layer, Adapter):
                around.append(around[-1].base_layer)
            base = share(model._modules[name], around[-1].base_layer)
            for adapter in reversed(around):
                layer = object.__new__(type(adapter))
                layer.__dict__ = dict(adapter.__dict__, _modules=dict(adapter._modules, base_layer=base))
                base = layer
            model._modules[name] = base
            continue
        if isinstance(module, Adapter):
            model._modules[name] = module
        else:
            share(model._modules[name], module)
    return model


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
add_adapters(model, [
    (["model.layers.*.self_attn.q_proj"], lambda layer: LoraLinear(layer, r=4, alpha=8.0, dropout=0.0, rslora=True)),
], parameters=[
    (["model.layers.*.mlp.experts"], lambda layer: lora_parameters(layer, ("gate_up_proj", dict(r=4, alpha=8.0, rslora=True)), ("down_proj", dict(r=4, alpha=8.0, rslora=True)))),
], dtype=torch.float32)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*layernorm*", "*.norm.*", "*_norm.*"], name) and p.requires_grad]},
    {"params": [p for name, p in model.named_parameters() if covers(["*layernorm*", "*.norm.*", "*_norm.*"], name) and p.requires_grad], "weight_decay": 0.0},
], lr=5e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)
model_for_eval = share(Model2(), model)


def next_batch():
    input_ids = torch.zeros(2, 32, dtype=torch.int64)
    labels = torch.zeros(2, 32, dtype=torch.int64)
    return input_ids.to(device), labels.to(device)


def next_eval_batch():
    input_ids = torch.zeros(4, 32, dtype=torch.int64)
    labels = torch.zeros(4, 32, dtype=torch.int64)
    return input_ids.to(device), labels.to(device)


def evaluate(i):
    model_for_eval.eval()
    with torch.no_grad():
        for _ in range(1):
            inputs = next_eval_batch()
            input_ids, labels = inputs
            counted = torch.sum(inputs[1][..., 1:] != (-100))
            num_items_in_batch = counted + 0
            del counted
            with torch.autocast("cuda", dtype=torch.bfloat16):
                outputs = model_for_eval(input_ids, labels, num_items_in_batch)
            outputs = (outputs[0], outputs[1].float(), outputs[2])
            loss = outputs[-1]
            loss *= 1
            losses = torch.mean(loss)
            del loss
            del outputs
            del num_items_in_batch
            losses = torch.tile(losses, (4,))
            all_losses = losses
    model_for_eval.train()


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
    evaluate(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
