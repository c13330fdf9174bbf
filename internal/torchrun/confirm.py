"""Runs a script of `memplan export torch` and writes what the CUDA allocator did.

usage: confirm.py                  writes what GPUs and PyTorch there are
       confirm.py SCRIPT OUT       runs the script, writes OUT
       confirm.py SCRIPT OUT N     as the first of N processes, without the others
       torchrun confirm.py SCRIPT OUT    as one of several, writes OUT.RANK

A script resets the peak statistics at the start of each step and reads them at
its end; between lie the step's events.
"""
import gc
import json
import os
import sys
import time

import torch


def device():
    if not torch.cuda.is_available():
        return {"torch": torch.__version__, "error": "this PyTorch finds no CUDA GPU"}
    p = torch.cuda.get_device_properties(0)
    return {"torch": torch.__version__, "name": p.name, "arch": p.major * 10 + p.minor, "sms": p.multi_processor_count, "memory": p.total_memory, "count": torch.cuda.device_count()}


def run(path):
    own = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(own)
    torch.cuda.init()
    free_before, total = torch.cuda.mem_get_info()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=4000000)
    gc.collect()
    gc.disable()
    count = lambda: len(torch.cuda.memory._snapshot()["device_traces"][own])
    reset, peak, reserved = torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved
    begins, ends, steps, started = [], [], [], [0.0]

    def on_reset(*device):
        if device:  # a library resets them, which is no step
            return reset(*device)
        torch.cuda.synchronize()
        begins.append(count())
        reset()
        started[0] = time.perf_counter()

    def on_peak():
        torch.cuda.synchronize()
        took = time.perf_counter() - started[0]
        ends.append(count())
        steps.append({"peak_allocated_bytes": peak(), "peak_reserved_bytes": reserved(), "ms": 1000 * took})
        return peak()

    torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated = on_reset, on_peak
    error = None
    try:
        exec(compile(open(path).read(), path, "exec"), {"__name__": "__main__"})
    except Exception as e:
        error = "%s: %s" % (type(e).__name__, e)
        if len(ends) < len(begins):  # the step that died
            ends.append(count())
            steps.append({"peak_allocated_bytes": peak(), "peak_reserved_bytes": reserved(), "ms": 0})
    trace = torch.cuda.memory._snapshot()["device_traces"][own]
    if not begins:
        begins.append(len(trace))
    bounds = [("setup", 0, begins[0])] + [("step%d" % (i + 1), b, e) for i, (b, e) in enumerate(zip(begins, ends))]
    ids, n, events = {}, 0, {}
    for label, b, e in bounds:
        out = events.setdefault(label, [])
        for t in trace[b:e]:
            if t["action"] == "alloc":
                n += 1
                ids[t["addr"]] = n
                out.append([n, t["size"]])
            elif t["action"] == "free_requested":
                out.append(-ids.pop(t["addr"], 0))
            elif t["action"] == "oom":
                out.append([0, t["size"]])
    free, _ = torch.cuda.mem_get_info()
    return {"events": events, "steps": steps, "error": error, "device_bytes": total - free, "context_bytes": total - free - torch.cuda.memory_reserved()}


if len(sys.argv) == 1:
    print(json.dumps(device()))
else:
    if len(sys.argv) > 3:
        import standin

        standin.install(int(sys.argv[3]))
    elif "RANK" in os.environ:
        sys.argv[2] += "." + os.environ["RANK"]
    out, sys.stdout = sys.argv[2], open(os.devnull, "w")
    result = run(sys.argv[1])
    with open(out, "w") as f:
        json.dump(result, f, separators=(",", ":"))
    if result["error"] and "TORCHELASTIC_RUN_ID" in os.environ:
        os._exit(1)  # so that torchrun ends the others, which wait for this one
