"trainer_torchtitan_fsdp: a training step, written by memplan export torch. Run it with torchrun --nproc-per-node 4."
import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard


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
        h = self.layers[0](h, self.freqs_cis)
        h = torch.utils.checkpoint.checkpoint(self.layers[1], h, self.freqs_cis, use_reentrant=False)
        h = self.layers[2](h, self.freqs_cis)
        h = self.norm(h)
        output = self.output(h)
        return output


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
with torch.device("meta"):
    model = Model()
mesh = init_device_mesh("cuda", (4,))
sharding = dict(mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), offload_policy=CPUOffloadPolicy())
for name in ["layers.0", "layers.1"]:
    fully_shard(model.get_submodule(name), **sharding)
fully_shard(model.get_submodule("layers.2"), **dict(sharding, reshard_after_forward=False))
fully_shard(model, **sharding)
model.to_empty(device="cpu")
for module in model.modules():
    for name, b in module.named_buffers(recurse=False):
        setattr(module, name, b.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0008, betas=(0.9, 0.95), eps=1e-08, weight_decay=0.1, foreach=True, fused=False)


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
    pred = model(inputs)
    unscaled = cross_entropy_loss(pred, labels)
    loss = unscaled / 1
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
dist.destroy_process_group()
