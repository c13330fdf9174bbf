"trainer_torchtitan: a training step, written by memplan export torch."
import functools
import json
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic cuBLAS needs it before the first use

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


def alternating_contexts(save, alternate):
    """Contexts of a checkpoint that keeps the results of some operators, of those in alternate of every other call."""
    calls = {}

    def policy(ctx, func, *args, **kwargs):
        keep = func in save
        if func in alternate:
            key = func, ctx.is_recompute
            calls[key] = calls.get(key, 0) + 1
            keep = calls[key] % 2 == 1
        names = torch.utils.checkpoint.CheckpointPolicy
        return names.MUST_SAVE if keep else names.PREFER_RECOMPUTE

    return torch.utils.checkpoint.create_selective_checkpoint_contexts(policy)


class ComplexMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_, freqs_cis):
        ctx.save_for_backward(freqs_cis)
        return x_ * freqs_cis.unsqueeze(-1)

    @staticmethod
    def backward(ctx, grad):
        freqs_cis, = ctx.saved_tensors
        return grad * torch.clone(freqs_cis).unsqueeze(-1), None


class ViewAsReal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.view(2, 64, 16, 8, 2)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()


class ComplexMul2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_, freqs_cis):
        ctx.save_for_backward(freqs_cis)
        return x_ * freqs_cis.unsqueeze(-1)

    @staticmethod
    def backward(ctx, grad):
        freqs_cis, = ctx.saved_tensors
        return grad * torch.clone(freqs_cis).unsqueeze(-1), None


class ViewAsReal2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.view(2, 64, 4, 8, 2)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(256, 256, bias=False)
        self.wk = nn.Linear(256, 64, bias=False)
        self.wv = nn.Linear(256, 64, bias=False)
        self.wo = nn.Linear(256, 256, bias=False)

    def apply_rotary_emb(self, xq, xk, freqs_cis):
        xq_ = xq.float().reshape(2, 64, -1, 8, 2)
        xk_ = xk.float().reshape(2, 64, -1, 8, 2)
        freqs_cis = freqs_cis.view(1, 64, 1, 8)
        xq_out = torch.flatten(ViewAsReal.apply(ComplexMul.apply(xq_, freqs_cis)), 3)
        xk_out = torch.flatten(ViewAsReal2.apply(ComplexMul2.apply(xk_, freqs_cis)), 3)
        return xq_out.type_as(xq), xk_out.type_as(xk)

    def repeat_kv(self, x):
        return x.unsqueeze(3).expand(2, 64, 4, 4, 16).reshape(2, 64, 16, 16)

    def forward(self, x, freqs_cis):
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(2, 64, -1, 16)
        xk = xk.view(2, 64, -1, 16)
        xv = xv.view(2, 64, -1, 16)
        xq, xk = self.apply_rotary_emb(xq, xk, freqs_cis)
        keys = self.repeat_kv(xk)
        values = self.repeat_kv(xv)
        xq = xq.transpose(1, 2)
        xk = keys.transpose(1, 2)
        xv = values.transpose(1, 2)
        output = F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)
        output = output.transpose(1, 2).contiguous()
        output = output.view(2, 64, -1)
        return self.wo(output)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(256, 768, bias=False)
        self.w2 = nn.Linear(768, 256, bias=False)
        self.w3 = nn.Linear(256, 768, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.feed_forward = FeedForward()
        self.attention_norm = nn.RMSNorm(256, eps=1e-05)
        self.ffn_norm = nn.RMSNorm(256, eps=1e-05)

    def forward(self, x, freqs_cis):
        h = x + self.attention(self.attention_norm(x), freqs_cis)
        out = h + self.feed_forward(self.ffn_norm(h))
        return out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("freqs_cis", torch.zeros(64, 8, dtype=torch.int64))
        self.tok_embeddings = nn.Embedding(500, 256)
        self.layers = nn.ModuleList([TransformerBlock() for _ in range(3)])
        self.norm = nn.RMSNorm(256, eps=1e-05)
        self.output = nn.Linear(256, 500, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for module in self.layers:
            h = torch.utils.checkpoint.checkpoint(module, h, self.freqs_cis, context_fn=functools.partial(alternating_contexts, [torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention.default, torch.ops.aten._scaled_dot_product_efficient_attention.default], [torch.ops.aten.mm.default]), use_reentrant=False)
        h = self.norm(h)
        output = self.output(h)
        return output


device = torch.device("cuda")
torch.use_deterministic_algorithms(True)
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0008, betas=(0.9, 0.95), eps=1e-08, weight_decay=0.1, foreach=False, fused=True)


def next_batch():
    tokens = torch.zeros(2, 64, dtype=torch.int64)
    labels = torch.zeros(2, 64, dtype=torch.int64)
    return tokens, labels


def cross_entropy_loss(pred, labels):
    return F.cross_entropy(torch.flatten(pred, 0, 1).float(), torch.flatten(labels, 0, 1))


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    optimizer.zero_grad(set_to_none=True)
    accumulated_losses = []
    inputs, labels = next_batch()
    inputs, labels = inputs.to(device), labels.to(device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        pred = model(inputs)
        unscaled = cross_entropy_loss(pred, labels)
        loss = unscaled / 2
    del unscaled
    del pred
    loss.backward()
    detached = loss.detach()
    accumulated_losses.append(detached)
    del detached
    with torch.autocast("cuda", dtype=torch.bfloat16):
        input_before, labels_before = inputs, labels
    inputs, labels = next_batch()
    inputs, labels = inputs.to(device), labels.to(device)
    del input_before, labels_before
    with torch.autocast("cuda", dtype=torch.bfloat16):
        pred = model(inputs)
        unscaled = cross_entropy_loss(pred, labels)
        loss = unscaled / 2
    del unscaled
    del pred
    loss.backward()
    detached = loss.detach()
    accumulated_losses.append(detached)
    del detached
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss = torch.sum(torch.stack(accumulated_losses))
    del accumulated_losses
    del loss
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
