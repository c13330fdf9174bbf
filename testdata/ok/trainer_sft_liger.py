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


def launch(output, kernel):
    """A kernel of another library, which writes into a tensor: what it computes is left out."""
    return output


def empty_per_multiprocessor(*size, device):
    return torch.empty(torch.cuda.get_device_properties(device).multi_processor_count, *size, device=device)


class LigerRopeFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        q = q.transpose(1, 2)
        k = k.transpose(1, 2)
        q = q.contiguous()
        k = k.contiguous()
        cos = cos.contiguous()
        sin = sin.contiguous()
        q = launch(q, "rope")
        ctx.save_for_backward(cos, sin)
        return q.transpose(1, 2), k.transpose(1, 2)

    @staticmethod
    def backward(ctx, dq, dk):
        cos, sin = ctx.saved_tensors
        dq = dq.transpose(1, 2)
        dk = dk.transpose(1, 2)
        dq = dq.contiguous()
        dk = dk.contiguous()
        dq = launch(dq, "rope")
        return dq.transpose(1, 2), dk.transpose(1, 2), None, None


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(64, 64, bias=False)
        self.k_proj = nn.Linear(64, 64, bias=False)
        self.v_proj = nn.Linear(64, 64, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)

    def liger_rotary_pos_emb(self, q, k, cos, sin):
        q, k = LigerRopeFunction.apply(q, k, cos, sin)
        return q, k

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.0 if self.training else 0.0, is_causal=True, scale=0.25, enable_gqa=True)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, position_embeddings, attention_mask):
        query_states = self.q_proj(hidden_states).view(2, 64, -1, 16).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(2, 64, -1, 16).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(2, 64, -1, 16).transpose(1, 2)
        cos, sin = position_embeddings
        query_states, key_states = self.liger_rotary_pos_emb(query_states, key_states, cos, sin)
        attn_output, attn_weights = self.sdpa_attention_forward(query_states, key_states, value_states, attention_mask)
        attn_output = attn_output.reshape(2, 64, -1).contiguous()
        attn_output = self.o_proj(attn_output)
        return attn_output, attn_weights


class LigerSiLUMulFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        a = a.contiguous()
        b = b.contiguous()
        shape = a
        a = a.view(-1, 128)
        b = b.view(-1, 128)
        c = launch(torch.empty_like(a), "swiglu_forward")
        ctx.save_for_backward(a, b)
        return c.view(2, 64, 128)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        dc = grad.contiguous()
        a = launch(a, "swiglu_backward")
        return a.view(2, 64, 128), b.view(2, 64, 128)


class LigerSwiGLUMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(64, 128, bias=False)
        self.up_proj = nn.Linear(64, 128, bias=False)
        self.down_proj = nn.Linear(128, 64, bias=False)

    def forward(self, x):
        return self.down_proj(LigerSiLUMulFunction.apply(self.gate_proj(x), self.up_proj(x)))


class LigerRMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W):
        X = X.contiguous()
        shape = X
        X = X.view(-1, 64)
        Y = torch.empty(128, 64, dtype=torch.float32, device=device)
        RSTD = torch.empty(128, dtype=torch.float32, device=device)
        Y = launch(Y, "rms_norm_forward")
        ctx.save_for_backward(X, W, RSTD)
        return Y.view(2, 64, 64)

    @staticmethod
    def backward(ctx, grad):
        X, W, RSTD = ctx.saved_tensors
        grad = grad.contiguous()
        dY = grad.view(-1, 64)
        partial_dW = empty_per_multiprocessor(64, device=device)
        dX = dY
        dX = launch(dX, "rms_norm_backward")
        dX = dX.view(2, 64, 64)
        dW = torch.sum(partial_dW, (0,)).type_as(W)
        return dX, dW


class LigerRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, hidden_states):
        return LigerRMSNormFunction.apply(hidden_states, self.weight)


class LlamaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()
        self.mlp = LigerSwiGLUMLP()
        self.input_layernorm = LigerRMSNorm()
        self.post_attention_layernorm = LigerRMSNorm()

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
        self.norm = LigerRMSNorm()
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
        inputs_embeds = inputs_embeds.requires_grad_()
        position_ids = torch.arange(64, device=device) + 0
        position_ids = position_ids.unsqueeze(0)
        causal_mask = self.create_causal_mask(inputs_embeds, attention_mask, position_ids)
        layer_mask = None
        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        hidden_states = torch.utils.checkpoint.checkpoint(functools.partial(self.layers[0], attention_mask=layer_mask, position_embeddings=position_embeddings, position_ids=position_ids), hidden_states, use_reentrant=False)
        hidden_states = self.norm(hidden_states)
        return None, hidden_states


class LigerFusedLinearCrossEntropyFunctionAccuracy(torch.autograd.Function):
    @staticmethod
    def liger_chunks(hidden_states, weight, target, grad_weight):
        loss_1d = torch.zeros(128, dtype=torch.float32, device=device)
        token_accuracy_1d = torch.zeros(128, dtype=torch.float32, device=device)
        target_mask = target != (-100)
        total_n_non_ignore = torch.sum(target_mask)
        del total_n_non_ignore
        input_chunk = hidden_states[0:16]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[0:16]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[16:32]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[16:32]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[32:48]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[32:48]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[48:64]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[48:64]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[64:80]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[64:80]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[80:96]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[80:96]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[96:112]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[96:112]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        input_chunk = hidden_states[112:128]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[112:128]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        grad_logits_t = grad_logits_chunk.transpose(0, 1)
        grad_weight += torch.mm(grad_logits_chunk.transpose(0, 1), input_chunk).float()
        loss = torch.sum(loss_1d)
        token_accuracy = torch.sum(token_accuracy_1d) / 1
        return loss, token_accuracy

    @staticmethod
    def liger_is_one(grad_output):
        one = torch.ones((), device=device)
        same = grad_output == one
        equal = torch.all(same)
        del equal, same
        return None

    @staticmethod
    def forward(ctx, hidden_states, weight, target):
        grad_input = torch.zeros_like(hidden_states)
        grad_weight = torch.zeros_like(weight)
        loss, token_accuracy = LigerFusedLinearCrossEntropyFunctionAccuracy.liger_chunks(hidden_states, weight, target, grad_weight)
        ctx.save_for_backward(grad_input, grad_weight)
        return loss, token_accuracy

    @staticmethod
    def backward(ctx, grad_output, grad_output3):
        grad_input, grad_weight = ctx.saved_tensors
        x = LigerFusedLinearCrossEntropyFunctionAccuracy.liger_is_one(grad_output)
        return launch(grad_input, "element_mul"), launch(grad_weight, "element_mul"), None


class LigerFusedLinearCrossEntropyFunctionFrozenAccuracy(torch.autograd.Function):
    @staticmethod
    def liger_chunks(hidden_states, weight, target, grad_weight):
        loss_1d = torch.zeros(128, dtype=torch.float32, device=device)
        token_accuracy_1d = torch.zeros(128, dtype=torch.float32, device=device)
        target_mask = target != (-100)
        total_n_non_ignore = torch.sum(target_mask)
        del total_n_non_ignore
        input_chunk = hidden_states[0:16]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[0:16]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[16:32]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[16:32]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[32:48]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[32:48]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[48:64]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[48:64]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[64:80]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[64:80]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[80:96]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[80:96]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[96:112]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[96:112]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        input_chunk = hidden_states[112:128]
        logits_chunk = input_chunk @ weight.transpose(0, 1)
        loss_1d_slice = loss_1d[112:128]
        grad_logits_chunk = launch(logits_chunk, "liger_cross_entropy")
        part = grad_logits_chunk @ weight
        del part
        loss = torch.sum(loss_1d)
        token_accuracy = torch.sum(token_accuracy_1d) / 1
        return loss, token_accuracy

    @staticmethod
    def liger_is_one(grad_output):
        one = torch.ones((), device=device)
        same = grad_output == one
        equal = torch.all(same)
        del equal, same
        return None

    @staticmethod
    def forward(ctx, hidden_states, weight, target):
        grad_input = torch.zeros_like(hidden_states)
        loss, token_accuracy = LigerFusedLinearCrossEntropyFunctionFrozenAccuracy.liger_chunks(hidden_states, weight, target, None)
        ctx.save_for_backward(grad_input)
        return loss, token_accuracy

    @staticmethod
    def backward(ctx, grad_output, grad_output3):
        grad_input, = ctx.saved_tensors
        x = LigerFusedLinearCrossEntropyFunctionFrozenAccuracy.liger_is_one(grad_output)
        return launch(grad_input, "element_mul"), None, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(64, 512, bias=False)

    def LigerForCausalLMLoss(self, hidden_states, lm_head_weight, labels, num_items_in_batch):
        labels = F.pad(labels, (0, 1), value=-100.0)
        shift_labels = labels[:, 1:].contiguous()
        hidden_states = hidden_states.view(-1, 64)
        shift_labels = shift_labels.view(-1)
        if lm_head_weight.requires_grad:
            loss, token_accuracy = LigerFusedLinearCrossEntropyFunctionAccuracy.apply(hidden_states, lm_head_weight, shift_labels)
        if not lm_head_weight.requires_grad:
            loss, token_accuracy = LigerFusedLinearCrossEntropyFunctionFrozenAccuracy.apply(hidden_states, lm_head_weight, shift_labels)
        loss = loss / num_items_in_batch
        return loss, token_accuracy

    def forward(self, input_ids, labels, num_items_in_batch):
        outputs = self.model(input_ids, None, None, None)
        hidden_states = outputs[1]
        loss, accuracy = self.LigerForCausalLMLoss(hidden_states[:, 0:, :], self.lm_head.weight, labels, num_items_in_batch)
        return accuracy, outputs[0], None, loss


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
], lr=2e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(2, 64, dtype=torch.int64)
    labels = torch.zeros(2, 64, dtype=torch.int64)
    return input_ids.to(device), labels.to(device)


def sft_tokens(outputs, labels, attention_mask):
    local_num_tokens = torch.zeros((), dtype=torch.int64, device=device)
    read = torch.sum(local_num_tokens)
    del read
    return local_num_tokens


def sft_liger_metrics(outputs, labels, attention_mask):
    local_num_tokens = sft_tokens(outputs, labels, attention_mask)
    read = torch.mean(outputs[0])
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
    outputs = (outputs[0], outputs[1], outputs[2], outputs[3])
    loss = outputs[-1]
    loss *= 1
    _ = sft_liger_metrics(outputs, labels, None)
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
