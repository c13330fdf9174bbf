"a model: a training step, written by memplan export torch."
import fnmatch
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(64)
        self.ln2 = nn.LayerNorm(64)
        self.qkv = nn.Linear(64, 192)
        self.proj = nn.Linear(64, 64)
        self.fc = nn.Linear(64, 256)
        self.out = nn.Linear(256, 64)
        self.drop = nn.Dropout(p=0.1)

    def split_heads(self, t):
        x = t.view(2, 16, 4, 16).transpose(1, 2)
        return x

    def attn(self, x):
        q, k, v = self.qkv(x).split(64, 2)
        q = self.split_heads(q)
        k = self.split_heads(k)
        v = self.split_heads(v)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return self.drop(self.proj(y.transpose(1, 2).contiguous().view(2, 16, 64)))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.drop(self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh")))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(100, 64)
        self.wpe = nn.Embedding(1024, 64)
        self.drop = nn.Dropout(p=0.1)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.lnf = nn.LayerNorm(64)
        self.head = nn.Linear(64, 100, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(16, device=device)))
        x = torch.utils.checkpoint.checkpoint(self.blocks[0], x, use_reentrant=False)
        x = torch.utils.checkpoint.checkpoint(self.blocks[1], x, use_reentrant=False)
        return self.head(self.lnf(x))


device = torch.device("cuda")


class OffloadActivations(torch.autograd.graph.saved_tensors_hooks):
    """Copies what autograd saves to the CPU on a stream of its own, and back when its node runs."""

    def __init__(self, models, pin_memory, use_streams, min_offload_size, max_fwd_stash_size, kept):
        super().__init__(self.pack, self.unpack)
        self.params = {p.untyped_storage().data_ptr() for m in models for p in m.parameters()}
        self.pin, self.streams, self.smallest, self.stash = pin_memory, use_streams, min_offload_size, max_fwd_stash_size
        self.compute = torch.cuda.default_stream()
        self.copies = torch.cuda.Stream() if use_streams else self.compute
        self.number = 0
        self.saved = {}  # number: (tensor, size, stride, offset) of a copy, or (tensor,)
        self.known, self.keys = {}, {}  # memory: number, and back
        self.left = {}  # number: (tensor, event) that is still on the GPU, too
        self.back, self.done = {}, {}  # number: tensor that was brought back, event of its node
        self.begun = self.ended = False
        staying = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
        for model in models:
            model.register_forward_pre_hook(lambda *_: self.again())
            for path, module in model.named_modules():
                if path and any(fnmatch.fnmatchcase(path, p) for p in kept):
                    module.register_forward_pre_hook(lambda *_: staying.__enter__())
                    module.register_forward_hook(lambda *_: staying.__exit__(), always_call=True)

    def know(self, key, n):
        self.known[key], self.keys[n] = n, key

    def forget(self, n):
        key = self.keys.pop(n, None)
        if key is not None and self.known.get(key) == n:
            del self.known[key]

    def release(self, n):
        tensor, event = self.left.pop(n)
        self.compute.wait_event(event)
        self.forget(n)
        return tensor

    def pack(self, t):
        self.number += 1
        n = self.number
        key = (t.untyped_storage().data_ptr() + t.storage_offset(), t.dtype)
        twice = key in self.known
        if twice or not t.is_cuda or t.numel() * t.element_size() < self.smallest or isinstance(t, nn.Parameter) or t.untyped_storage().data_ptr() in self.params:
            self.saved[n] = (t,)
            if twice:
                self.know(key, n)
            return n
        last = None
        if self.streams:
            for k in list(self.left):
                if k > n - self.stash:
                    break
                last = self.release(k)
            self.copies.wait_stream(self.compute)
        with torch.cuda.stream(self.copies):
            if 0 in t.stride():
                whole = t.as_strided((t.untyped_storage().size() // t.element_size(),), (1,), 0)
                copy = torch.empty(whole.size(), dtype=t.dtype, pin_memory=self.pin)
                copy.copy_(whole, non_blocking=True)
                del whole
            else:
                if t.storage_offset() != 0:
                    t = t.clone(memory_format=torch.contiguous_format)
                else:
                    t = t.contiguous()
                copy = torch.empty_like(t, device="cpu", pin_memory=self.pin)
                copy.copy_(t, non_blocking=True)
            self.saved[n] = (copy, t.size(), t.stride(), t.storage_offset())
        if self.streams:
            self.left[n] = (t, self.copies.record_event())
            self.know(key, n)
        return n

    def unpack(self, n):
        if not self.begun:
            self.begun, self.task, self.node = True, torch._C._current_graph_task_id(), None
            torch.autograd.Variable._execution_engine.queue_callback(self.end)
        t, *view = self.saved.pop(n)
        if not view:
            self.forget(n)
            return t
        if not self.streams:
            return t.to(device, non_blocking=True).as_strided(*view)
        node, before = torch._C._current_autograd_node(), []
        if torch._C._current_graph_task_id() == self.task and self.node != node:
            self.node, before = node, list(self.back)
        sharers = None
        if n in self.left:
            t = self.left[n][0]
        else:
            with torch.cuda.stream(self.copies):
                t = t.to(device, non_blocking=True).as_strided(*view)
            self.compute.wait_stream(self.copies)
            self.back[n] = t
            sharers = torch._C._storage_Use_Count(t.untyped_storage()._cdata)
        node.register_hook(lambda outputs, _: self.ran(n, sharers, before, outputs))
        self.forget(n)
        return t

    def ran(self, n, sharers, before, outputs):
        """Frees what was brought back for the nodes before, and what others refer to by now."""
        t, last = self.back.get(n), None
        if t is not None and sharers is not None:
            if torch._C._storage_Use_Count(t.untyped_storage()._cdata) > sharers:
                t.record_stream(self.compute)
                del self.back[n]
            else:
                self.done[n] = self.compute.record_event()
        for k in list(self.left):
            last = self.release(k)
        for k in before:
            if k in self.done:
                self.copies.wait_event(self.done.pop(k))
            self.back.pop(k, None)
        return outputs

    def end(self):
        for k in list(self.back):
            if k in self.done:
                self.copies.wait_event(self.done.pop(k))
            del self.back[k]
        self.begun, self.ended = False, True

    def again(self):
        """Gives up what no backward pass has unpacked."""
        if self.ended and torch.is_grad_enabled():
            self.ended = False
            for d in (self.left, self.saved, self.known, self.keys):
                d.clear()


model = Model().to(device)
offloaded = OffloadActivations([model], True, True, 512, 3, ["head"])
optimizer = torch.optim.SGD(model.parameters())


def next_batch():
    ids = torch.zeros(2, 16, dtype=torch.int64)
    y = torch.zeros(2, 16, dtype=torch.int64)
    return ids.to(device), y.to(device)


def step(i):
    with offloaded:
        ids, y = next_batch()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(ids)
            loss = F.cross_entropy(out.view(-1, 100), y.view(-1))
        loss.backward()
        optimizer.step()


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    step(i)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
