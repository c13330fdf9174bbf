"""Runs PyTorch scripts on a pretended GPU and writes which storages operators made and when they died.

usage: pretend.py LIST      lines "ARCH NAME [CONF]": runs NAME.py, writes NAME.json; CONF is not used

The GPU is that of recorder.py (internal/record): PyTorch's own autograd, autocast, optimizers and modules, over storages without memory.
What a kernel or a library allocates inside is not there. Works with PyTorch for CPUs, of any release.
"""
import gc
import json
import os
import sys

import torch

os.environ["MEMPLAN_RECORD"] = "{}"
import record
import recorder


class Events:
    """Takes the place of the recorder's writer."""

    closed = False
    cleared = None
    tables = {"frame": {}}

    def __init__(self):
        self.list, self.live, self.n = [], {}, 0
        self.used = self.peak = 0

    def write(self, line):
        if line[0] == "free":
            at = self.live.pop(line[1], None)
            if at is not None:
                self.list.append(-at[0])
                self.used -= at[1]

    def made(self, number, size):
        self.n += 1
        rounded = size + 511 & ~511
        self.live[number] = self.n, rounded
        self.list.append([self.n, size])
        self.used += rounded
        self.peak = max(self.peak, self.used)

    def operator(self, op, args, kwargs, outs):
        """Says which operator made what was made last."""
        if os.environ.get("NAMED"):
            for e in reversed(self.list):
                if isinstance(e, int) or len(e) > 2:
                    break
                e.append(op.name())

    def intern(self, *args):
        return 0

    def end(self, *args):
        pass


events = Events()


def write(line):
    if line[0] == "storage" and line[1].startswith("cuda"):
        if line[2]:
            events.made(recorder.numbers[0] - 1, line[2])
    else:
        Events.write(events, line)


def install(arch):
    """Makes the GPU."""
    recorder.MAJOR, recorder.MINOR = int(arch[2:-1]), int(arch[-1])
    with open("cudnn.json") as f:
        recorder.GPU.update(arch=arch, sms=SMS[arch], cudnn=json.load(f))
    recorder.writer = events
    events.write = write
    recorder.record = events.operator
    recorder.asked = lambda what, answer: answer
    recorder.doubt = doubt
    recorder.where = lambda: 0
    recorder.install_training = lambda: None
    recorder.install(torch)
    recorder.CLEAR_CACHE, torch.clear_autocast_cache = torch.clear_autocast_cache, recorder.clear_autocast_cache


def doubt(text):
    raise NotImplementedError(text)


SMS = {"sm70": 80, "sm75": 40, "sm80": 108, "sm86": 82, "sm89": 128, "sm90": 132, "sm100": 148, "sm120": 170}


def run(name):
    record.without_values()
    gc.collect()
    gc.disable()
    begins, ends, steps = [], [], []

    def on_reset():
        begins.append(len(events.list))
        events.peak = events.used

    def on_peak():
        ends.append(len(events.list))
        steps.append({"peak_allocated": events.peak})
        return events.peak

    torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated = on_reset, on_peak
    record.execute(name)
    bounds = [("setup", 0, begins[0])] + [("step%d" % (i + 1), b, e) for i, (b, e) in enumerate(zip(begins, ends))]
    return {"torch": torch.__version__, "events": {label: events.list[b:e] for label, b, e in bounds}, "steps": steps}


def child(name, run):
    record.write(name, run)
    os._exit(0)


def main(run, ready=None):
    """Calls run in a process for each line of the list, after ready, which imports what they share."""
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # imports what optimizers import
    jobs = {}
    for line in open(sys.argv[1]).read().split("\n"):
        if line:
            arch, name = line.split()[:2]
            jobs.setdefault(arch, []).append(name)
    workers = int(os.environ.get("WORKERS", "2"))
    for arch, names in jobs.items():
        if os.fork() == 0:
            install(arch)
            if ready:
                ready()
            running = 0
            for name in names:
                if running == workers:
                    os.wait()
                    running -= 1
                if os.fork() == 0:
                    child(name, run)
                running += 1
            while running:
                os.wait()
                running -= 1
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main(run)
