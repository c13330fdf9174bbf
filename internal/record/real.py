"""Runs a training script on the GPU that there is and writes down what PyTorch's allocator did.

`memplan record --real` puts this file's folder on PYTHONPATH as sitecustomize. It turns on the history of the allocator when CUDA is
initialized, notes where steps of optimizers end, and writes allocations and frees, without their sites.
"""

import atexit
import gzip
import json
import os
import sys

OPTIONS = json.loads(os.environ.get("MEMPLAN_RECORD") or "{}")
OUT, STEPS, CLAIM = OPTIONS.get("out", ""), OPTIONS.get("steps", 3), OPTIONS.get("claim", "")
MOST = 4_000_000  # entries of the history
steps = {}  # the last entry of each
done = []


def install(torch):
    lazy_init = torch.cuda._lazy_init
    begun = []

    def initialize():
        lazy_init()
        if not begun and torch.cuda.is_initialized():
            begun.append(1)
            try:
                os.close(os.open(CLAIM, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except OSError:
                done.append(1)  # another process is recorded
                return
            torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=MOST)
            from torch.optim.optimizer import register_optimizer_step_post_hook

            counts = {}

            def after(optimizer, args, kwargs):
                n = counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
                steps[n] = len(history(torch))
                if min(counts.values()) >= STEPS or n >= 4 * STEPS:
                    write(torch, "steps")
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(0)

            register_optimizer_step_post_hook(after)

    torch.cuda._lazy_init = initialize
    atexit.register(lambda: begun and write(torch, "exit"))


def history(torch):
    return torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]


def write(torch, reason):
    if done or not OUT:
        return
    done.append(1)
    p = torch.cuda.get_device_properties(torch.cuda.current_device())
    head = {
        "torch": str(torch.__version__), "cuda_build": True, "python": "%d.%d" % sys.version_info[:2], "real": True, "argv": [os.path.basename(a) for a in sys.argv],
        "gpu": {"name": p.name, "arch": "sm%d%d" % (p.major, p.minor), "sms": p.multi_processor_count, "memory": p.total_memory}, "steps": STEPS,
        "batch": OPTIONS.get("batch", {}), "alloc_conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or "",
    }
    ends = {}
    for n, at in steps.items():
        ends.setdefault(at, []).append(n)
    streams = {0: 0}
    with gzip.open(OUT, "wt", 5) as f:
        put = lambda *line: f.write(json.dumps(line, separators=(",", ":")) + "\n")
        put("memplan", 1, head)
        entries = history(torch)
        for i, e in enumerate(entries):
            for n in ends.get(i, ()):
                put("phase", "step", n)
            if e["action"] == "alloc":
                put("alloc", e["addr"], e["size"], streams.setdefault(e["stream"], len(streams)))
            elif e["action"] == "free_requested":
                put("dealloc", e["addr"])
        for n in ends.get(len(entries), ()):
            put("phase", "step", n)
        put("end", {"reason": reason})


if __name__ == "sitecustomize":
    if OUT:
        sys.meta_path.insert(0, Finder("torch", install))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: done.append(1))
    other()
