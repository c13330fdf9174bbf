"""Writes what a process takes of a GPU beside the segments of PyTorch's allocator.

usage: calibrate.py            measures
       calibrate.py child N    does, as the second process; N bytes were in use before

The first process creates a context and reads what is in use, so that what the second
one adds is its own, whatever others hold: once with the context alone, and once after
training steps, for which kernels of convolutions, matrix products, attention and
optimizers are loaded.
"""
import json
import os
import subprocess
import sys

import torch


def used():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def steps():
    nn, half = torch.nn, torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    conv = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 64))
    layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    net = nn.ModuleList([conv, layer, nn.Linear(64, 10)]).cuda()
    for make in (lambda p: torch.optim.AdamW(p), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
        optimizer = make(net.parameters())
        for cast in (False, True):
            for _ in range(2):
                x, y = torch.randn(8, 3, 32, 32, device="cuda"), torch.randint(10, (8,), device="cuda")
                with torch.autocast("cuda", half, enabled=cast):
                    h = net[1](net[0](x).unsqueeze(0).expand(8, 8, 64))
                    loss = nn.functional.cross_entropy(net[2](h.mean(1)), y)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()


def measure():
    if not torch.cuda.is_available():
        return {"torch": torch.__version__, "error": "this PyTorch finds no CUDA GPU"}
    p = torch.cuda.get_device_properties(0)
    out = {"torch": torch.__version__, "cuda": torch.version.cuda or "", "name": p.name, "arch": p.major * 10 + p.minor, "sms": p.multi_processor_count, "memory": p.total_memory, "loading": os.environ.get("CUDA_MODULE_LOADING", "")}
    torch.cuda.init()
    child = subprocess.run([sys.executable, __file__, "child", str(used())], stdout=subprocess.PIPE)
    if child.returncode:
        out["error"] = "a second process could not use the GPU beside the first"
        return out
    out.update(json.loads(child.stdout.decode().strip().splitlines()[-1]))
    return out


def child(before):
    torch.cuda.init()
    bare = used() - before - torch.cuda.memory_reserved()
    steps()
    return {"bare": bare, "loaded": used() - before - torch.cuda.memory_reserved()}


print(json.dumps(child(int(sys.argv[2])) if len(sys.argv) > 2 else measure()))
