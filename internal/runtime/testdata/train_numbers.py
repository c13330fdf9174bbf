"""Runs exported scripts in PyTorch on the CPU, in float64, from weights and batches
that are functions of a name and an index, and prints what came of them.

Reads a JSON list of jobs from standard input; prints one JSON object for each.
"""
import json
import re
import sys

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def digits(name, n):
    """n numbers in [0, 1): splitmix64 of the 64-bit FNV-1a hash of a name."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & (1 << 64) - 1
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(h)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z = z ^ z >> np.uint64(31)
    return torch.from_numpy((z >> np.uint64(11)).astype(np.float64) / (1 << 53))


def first(name, t):
    u = digits(name, t.numel()).reshape(t.shape)
    if t.dim() >= 2:
        return (2 * u - 1) * (3 / (t.numel() // t.shape[0])) ** 0.5
    if name.endswith(("weight", "running_var")):
        return 0.5 + u
    return 0.2 * (2 * u - 1)


def run(job):
    losses, tensors, loads = [], {}, {}

    def visit(path, module):  # in the order of Module.to
        for name, child in module._modules.items():
            visit(f"{path}{name}.", child)
        for group in module._parameters, module._buffers:
            for name, t in group.items():
                if t is None or id(t) in tensors:
                    continue
                if t.is_floating_point():
                    with torch.no_grad():
                        t.copy_(first((path + name).replace(".modules_to_save.", ".original_module."), t))
                tensors[id(t)] = path + name, t, t.detach().clone() if t.is_floating_point() else torch.zeros_like(t)

    def initialize(name, model):
        if name in job["models"]:
            visit("" if len(job["models"]) == 1 else name + ".", model)

    def batch(inputs):
        out = []
        for i in inputs:
            n = loads.get(i["name"], 0)
            loads[i["name"]] = n + 1
            count = int(np.prod(i["size"], dtype=np.int64))
            u = digits(f"{i['name']}/{n}", count).reshape(i["size"])
            if i["bound"]:
                u = (u * i["bound"]).floor()
            elif "float" in i["dtype"]:
                u = 4 * u - 2
            else:
                u = torch.ones(i["size"])
            out.append(u.to(getattr(torch, i["dtype"])))
        return tuple(out)

    def backward(self, *args, **kwargs):
        if "scaler" not in space:
            losses.append(self.item())
        return torch.autograd.backward(self, *args, **kwargs)

    def scale(self, loss):
        losses.append(loss.item())
        return original_scale(self, loss)

    script = job["script"].replace('torch.device("cuda")', 'torch.device("cpu")').replace("torch.float32", "torch.float64")
    script = script.replace('GradScaler("cuda")', 'GradScaler("cpu")').replace(".pin_memory()", "").replace("pin_memory=True", "pin_memory=False")
    script = script.replace("capturable=True", "capturable=False").replace('torch.autocast("cuda"', 'torch.autocast("cpu"')
    # once the models are as they stay, with masks and adapters
    first_use = re.search(r"^(optimizer|criterion|ema\b|upcoming|def next_batch|def step_parameter)", script, flags=re.M).start()
    models = "".join(f'initialize("{m}", {m})\n' for m in job["models"])
    script = script[:first_use] + models + script[first_use:]
    script = script.replace("def next_batch():", "def unused():").replace("def next_eval_batch():", "def unused_eval():")
    space = {"__name__": "script", "initialize": initialize,
             "next_batch": lambda: batch(job["inputs"]), "next_eval_batch": lambda: batch(job["eval_inputs"])}
    script = re.sub(r"^ *print\(json.*\n", "", script, flags=re.M)
    for f in "reset_peak_memory_stats", "max_memory_allocated", "max_memory_reserved", "empty_cache", "synchronize":
        setattr(torch.cuda, f, lambda *a: 0)
    original, torch.Tensor.backward = torch.Tensor.backward, backward
    original_scale, torch.amp.GradScaler.scale = torch.amp.GradScaler.scale, scale
    try:
        exec(compile(script, job["name"], "exec"), space)
    finally:
        torch.Tensor.backward, torch.amp.GradScaler.scale = original, original_scale
    changes = {}
    for path, t, was in tensors.values():
        d = (t.detach().double() - was).reshape(-1)
        changes[path] = [(d * (2 * digits(path + "/change", d.numel()) - 1)).sum().item(), d.norm().item()]
    return {"losses": losses, "changes": changes}


def main():
    say = sys.stdout
    sys.stdout = sys.stderr
    for job in json.load(sys.stdin):
        try:
            r = run(job)
        except Exception as e:  # whatever a script does
            r = {"error": f"{type(e).__name__}: {e}"}
        if re.search("NaN|Infinity", json.dumps(r)):
            r = {"error": "not a number"}
        r["name"] = job["name"]
        print(json.dumps(r), file=say, flush=True)


main()
