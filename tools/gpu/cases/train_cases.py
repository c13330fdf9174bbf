"""Runs real training steps and writes one JSON per case.

usage:
  python3 train_cases.py OUTDIR [-j N] [-k SUBSTRING] [-l]
"""
import argparse
import contextlib
import gc
import json
import os
import sys
import time
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models  # noqa: E402


def no_init():
    """Weights need no values here: make every initialiser a no-op."""
    import torch.nn.modules.activation as act
    for k in dir(nn.init):
        if k.endswith("_") and not k.startswith("_"):
            setattr(nn.init, k, lambda t, *a, **kw: t)
            if hasattr(act, k):
                setattr(act, k, getattr(nn.init, k))


OPT = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "sgd_nesterov_wd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "sgd_foreach_off": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw_foreach_off": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "rmsprop_momentum_centered": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "adamax": lambda p: torch.optim.Adamax(p),
}


class Meter:
    def __init__(self):
        self.prev = 0

    def trace_len(self):
        return len(torch.cuda.memory._snapshot()["device_traces"][0])

    def mark(self):
        r = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
             "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved(),
             "peak_requested": torch.cuda.memory_stats()["requested_bytes.all.peak"], "event": self.trace_len()}
        torch.cuda.reset_peak_memory_stats()
        return r


def nbytes(ts):
    seen, n = set(), 0
    for t in ts:
        if t is None or not t.is_cuda or t.untyped_storage().data_ptr() in seen:
            continue
        seen.add(t.untyped_storage().data_ptr())
        n += t.untyped_storage().nbytes()
    return n


class Holder:
    """The names a training script's loop keeps alive."""


def step_once(cfg, model, opt, scaler, loss_fn, data, meter, phases, h):
    prec, feats = cfg["precision"], cfg["features"]
    amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(prec)
    ctx = (lambda: torch.autocast("cuda", dtype=amp)) if amp else contextlib.nullcontext
    if "inference" in feats:
        grad = torch.inference_mode() if "inference_mode" in feats else torch.no_grad()
        with grad, ctx():
            h.x = data()[0]
            h.out = model(h.x)
        phases["forward"] = meter.mark()
        return
    micro = cfg.get("accumulate", 1)
    for k in range(micro):
        h.x, h.y = data()
        with ctx():
            h.out = model(h.x)
            h.loss = loss_fn(h.out, h.y)
        if micro > 1:
            h.loss = h.loss / micro
        phases["forward" if micro == 1 else "forward%d" % k] = meter.mark()
        (scaler.scale(h.loss) if scaler else h.loss).backward()
        phases["backward" if micro == 1 else "backward%d" % k] = meter.mark()
    if "clip" in feats:
        if scaler:
            scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        phases["clip"] = meter.mark()
    if scaler:
        scaler.step(opt)
        scaler.update()
    else:
        opt.step()
    phases["optimizer"] = meter.mark()
    opt.zero_grad(set_to_none="zero_grad_keep" not in feats)
    if "item" in feats:
        h.loss.item()
    phases["zero_grad"] = meter.mark()


def run_case(cfg, keep_events=True):
    t0 = time.time()
    kind, args = cfg["model"], dict(cfg["args"])
    fac, mkx, mky, loss_fn = models.KINDS[kind]
    fargs = {k: v for k, v in args.items() if k not in ("seq",) and not (k == "img" and kind in ("unet", "resnet", "vgg", "lenet"))}
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=2000000)
    no_init()
    gc.collect()
    gc.disable()  # python's cyclic collector must not decide when memory goes
    meter = Meter()
    torch.cuda.reset_peak_memory_stats()
    model = fac(**fargs)
    if "checkpoint_sequential" in cfg["features"]:
        model = models.SeqCheckpoint(model, cfg.get("segments", 4))
    model = model.to(device="cuda", dtype=torch.bfloat16) if cfg["precision"] == "pure_bf16" else model.to("cuda")
    if "channels_last" in cfg["features"]:
        model = model.to(memory_format=torch.channels_last)
    infer = "inference" in cfg["features"]
    model.train(not infer)
    setup = {"model": meter.mark()}
    opt = None if infer else OPT[cfg["optimizer"]](model.parameters())
    scaler = torch.amp.GradScaler("cuda") if cfg["precision"] == "amp_fp16" and not infer else None
    b = cfg["batch"]
    hx, hy = mkx(b, args), mky(b, args)
    if "channels_last" in cfg["features"]:
        hx = hx.to(memory_format=torch.channels_last)
    if hx.is_floating_point() and cfg["precision"] == "pure_bf16":
        hx = hx.to(torch.bfloat16)
    if cfg.get("input", "static") == "static":
        x, y = hx.cuda(), hy.cuda()
        data = lambda: (x, y)  # noqa: E731
    else:
        data = lambda: (hx.cuda(), hy.cuda())  # noqa: E731
    setup["data_optimizer"] = meter.mark()
    steps, h = [], Holder()
    for i in range(cfg.get("steps", 3)):
        ph = {}
        step_once(cfg, model, opt, scaler, loss_fn, data, meter, ph, h)
        if cfg.get("loop", "function") == "function":  # the step is a function: its locals go on return
            h.__dict__.clear()
        end = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
        meter.mark()
        steps.append({"peak_allocated": max(p["peak_allocated"] for p in ph.values()), "peak_reserved": max(p["peak_reserved"] for p in ph.values()),
                      "peak_requested": max(p["peak_requested"] for p in ph.values()),
                      "end_allocated": end["allocated"], "end_reserved": end["reserved"], "phases": ph})
    st = torch.cuda.memory_stats()
    tr = torch.cuda.memory._snapshot()["device_traces"][0]
    bounds = [0, setup["data_optimizer"]["event"]] + [list(s["phases"].values())[-1]["event"] for s in steps]
    ids, n, segs = {}, 0, []
    out = [[] for _ in bounds]
    k = 0
    for j, e in enumerate(tr):
        while k + 1 < len(bounds) and j >= bounds[k + 1]:
            k += 1
        if e["action"] == "alloc":
            n += 1
            ids[e["addr"]] = n
            out[k].append([n, e["size"]] + ([e["stream"]] if e["stream"] else []))
        elif e["action"] == "free_requested":
            out[k].append(-ids.pop(e["addr"], 0))
        elif e["action"] in ("segment_alloc", "segment_free", "segment_map", "segment_unmap"):
            segs.append([e["action"], e["size"], len(out[k]), k])
    names = ["setup"] + ["step%d" % (i + 1) for i in range(len(bounds) - 1)]
    events = {}
    for i, nm in enumerate(names[: len(bounds) - 1]):
        events[nm] = out[i]
    opt_state = nbytes(t for s in (opt.state.values() if opt else ()) for t in s.values() if torch.is_tensor(t))
    res = {
        "name": cfg["name"], "torch": torch.__version__, "config": cfg, "device": torch.cuda.get_device_name(0),
        "param_count": sum(p.numel() for p in model.parameters()), "param_tensors": len(list(model.parameters())),
        "param_bytes": nbytes(model.parameters()), "buffer_bytes": nbytes(model.buffers()), "optimizer_state_bytes": opt_state,
        "setup": setup, "steps": steps, "segments": segs,
        "peak_allocated": max([s["peak_allocated"] for s in steps] + [p["peak_allocated"] for p in setup.values()]),
        "peak_reserved": max([s["peak_reserved"] for s in steps] + [p["peak_reserved"] for p in setup.values()]),
        "final": {k: st[k] for k in ("allocated_bytes.all.current", "reserved_bytes.all.current", "active_bytes.all.current",
                                     "inactive_split_bytes.all.current", "requested_bytes.all.current", "segment.all.current",
                                     "allocation.all.current", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")},
        "events": events if keep_events else {},
        "wall_s": round(time.time() - t0, 3),
    }
    return res


def matrix():
    cases = {}

    def add(name, model, batch, precision="fp32", optimizer="adamw", features=(), arch="sm80", args=None, **kw):
        assert name not in cases, name
        cases[name] = dict(name=name, model=model, args=args or {}, batch=batch, precision=precision, optimizer=optimizer,
                           features=list(features), arch=arch, **kw)

    deep = {"sizes": [1024] * 9 + [10], "act": "gelu"}
    gpt_s = {"d": 256, "heads": 8, "layers": 4, "vocab": 8192, "ctx": 256, "seq": 256, "dropout": 0.1}
    llama_s = {"d": 512, "heads": 8, "kv": 4, "layers": 6, "ff": 1376, "vocab": 32000, "ctx": 512, "seq": 512}
    bert_s = {"d": 256, "heads": 4, "layers": 4, "ff": 1024, "vocab": 8192, "seq": 128}
    base = [  # name, model, batches, args, usual optimizer
        ("mlp", "mlp", (32, 256, 4096), {"sizes": [1024, 2048, 10]}, "sgd"),
        ("deepmlp", "mlp", (64, 1024), deep, "adam"),
        ("lenet", "lenet", (64, 512), {}, "sgd_momentum"),
        ("vgg11", "vgg", (8, 32), {"depth": 11}, "sgd_momentum"),
        ("resnet18", "resnet", (8, 32), {"depth": 18}, "sgd_momentum"),
        ("berts", "bert", (8, 32), bert_s, "adamw"),
        ("mha", "mha", (8, 64), {"seq": 128}, "adam"),
        ("gpts", "gpt", (4, 16), gpt_s, "adamw"),
        ("llamas", "llama", (2, 8), llama_s, "adamw"),
        ("lstm", "lstm", (16, 64), {"seq": 64}, "adam"),
        ("vits", "vit", (8, 32), {}, "adamw"),
    ]
    for nm, m, bs, a, o in base:
        for b in bs:
            add("%s_b%d_fp32_%s" % (nm, b, o), m, b, "fp32", o, args=a)
        for p in ("amp_bf16", "amp_fp16", "pure_bf16"):
            add("%s_b%d_%s_%s" % (nm, bs[0], p, o), m, bs[0], p, o, args=a)
        add("%s_b%d_infer" % (nm, bs[0]), m, bs[0], "fp32", "none", ["inference"], args=a)
    small = {"mlp": ("mlp", 32, {"sizes": [1024, 2048, 10]}), "deepmlp": ("mlp", 64, deep), "gpts": ("gpt", 4, gpt_s),
             "resnet18": ("resnet", 8, {"depth": 18}), "berts": ("bert", 8, bert_s), "llamas": ("llama", 2, llama_s), "vits": ("vit", 8, {})}
    for nm in ("mlp", "gpts", "resnet18"):
        m, b, a = small[nm]
        for o in OPT:
            n = "%s_b%d_fp32_%s" % (nm, b, o)
            if n not in cases:
                add(n, m, b, "fp32", o, args=a)
    for o in ("adamw_fused", "adafactor", "sgd", "adamw_foreach_off"):
        for nm in ("deepmlp", "llamas", "vits"):
            m, b, a = small[nm]
            add("%s_b%d_fp32_%s" % (nm, b, o), m, b, "fp32", o, args=a)
        m, b, a = small["gpts"]
        add("gpts_b%d_amp_bf16_%s" % (b, o), m, b, "amp_bf16", o, args=a)
        add("gpts_b%d_pure_bf16_%s" % (b, o), m, b, "pure_bf16", o, args=a)
    for nm, (m, b, a) in small.items():
        o = "adamw"
        add("%s_b%d_accum4" % (nm, b), m, b, "fp32", o, args=a, accumulate=4)
        add("%s_b%d_keepgrad" % (nm, b), m, b, "fp32", o, ["zero_grad_keep"], args=a)
        add("%s_b%d_clip" % (nm, b), m, b, "fp32", o, ["clip"], args=a)
        add("%s_b%d_perstep" % (nm, b), m, b, "fp32", o, ["item"], args=a, input="per_step")
        add("%s_b%d_amp_fp16_clip_accum2" % (nm, b), m, b, "amp_fp16", o, ["clip"], args=a, accumulate=2)
        add("%s_b%d_infer_bf16" % (nm, b), m, b, "amp_bf16", "none", ["inference"], args=a)
        add("%s_b%d_infermode" % (nm, b), m, b, "fp32", "none", ["inference", "inference_mode"], args=a)
        if m != "mlp":
            add("%s_b%d_ckpt" % (nm, b), m, b, "fp32", o, ["checkpoint"], args=dict(a, ckpt=True))
            add("%s_b%d_ckpt_amp_bf16" % (nm, b), m, b, "amp_bf16", o, ["checkpoint"], args=dict(a, ckpt=True))
    for seg in (2, 4):
        add("deepmlp_b1024_ckptseq%d" % seg, "mlp", 1024, "fp32", "adam", ["checkpoint_sequential"], args=deep, segments=seg)
    for arch in ("sm70", "sm75", "sm86", "sm89", "sm90"):
        for nm in ("mlp", "gpts", "resnet18"):
            m, b, a = small[nm]
            add("%s_b%d_%s" % (nm, b, arch), m, b, "fp32", "adamw", arch=arch, args=a)
            add("%s_b%d_amp_bf16_%s" % (nm, b, arch) if arch not in ("sm70", "sm75") else "%s_b%d_amp_fp16_%s" % (nm, b, arch), m, b,
                "amp_bf16" if arch not in ("sm70", "sm75") else "amp_fp16", "adamw", arch=arch, args=a)
    for conf in ("expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4"):
        for nm in ("mlp", "gpts", "resnet18", "llamas"):
            m, b, a = small[nm]
            add("%s_b%d_conf_%s" % (nm, b, conf.split(":")[0].split("_")[0]), m, b, "fp32", "adamw", args=a, alloc_conf=conf)
    for nm in small:
        m, b, a = small[nm]
        add("%s_b%d_flat" % (nm, b), m, b, "fp32", "adamw", args=a, input="per_step", loop="flat")
        add("%s_b%d_flat_amp_bf16" % (nm, b), m, b, "amp_bf16", "adamw", ["item"], args=a, input="per_step", loop="flat")
    add("mlp_b32_flat_sgd", "mlp", 32, "fp32", "sgd", args={"sizes": [1024, 2048, 10]}, input="per_step", loop="flat")
    for nm, b in (("resnet18", 8), ("vgg11", 8), ("alexnet", 32), ("mobilenet_v2", 8), ("squeezenet1_1", 16)):
        add("tv_%s_b%d_sgd_momentum" % (nm, b), "tv", b, "fp32", "sgd_momentum", args={"net": nm})
        add("tv_%s_b%d_amp_bf16_adamw_flat" % (nm, b), "tv", b, "amp_bf16", "adamw", args={"net": nm}, input="per_step", loop="flat")
    return cases


def child(cfg, out):
    try:
        os.environ["FAKE_GPU_ARCH"] = cfg["arch"]
        if cfg.get("alloc_conf"):
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = cfg["alloc_conf"]
        r = run_case(cfg)
        with open(os.path.join(out, cfg["name"] + ".json"), "w") as f:
            json.dump(r, f, separators=(",", ":"))
        ev = sum(len(v) for v in r["events"].values())
        print("%-44s peak alloc %9.2f MiB  rsv %8d MiB  ev %6d  %.2fs" % (cfg["name"], r["peak_allocated"] / 2**20, r["peak_reserved"] >> 20, ev, r["wall_s"]), flush=True)
        return 0
    except BaseException:
        with open(os.path.join(out, cfg["name"] + ".error"), "w") as f:
            traceback.print_exc(file=f)
        print("%-44s FAILED %s" % (cfg["name"], traceback.format_exc().strip().splitlines()[-1][:160]), flush=True)
        return 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("-j", type=int, default=1)
    ap.add_argument("-k", default="")
    ap.add_argument("-l", action="store_true")
    a = ap.parse_args()
    cases = [c for n, c in matrix().items() if a.k in n]
    if a.l:
        print("\n".join(c["name"] for c in cases))
        print(len(cases))
        return
    os.makedirs(a.out, exist_ok=True)
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # imports what optimizers import
    running, bad = {}, 0
    t0 = time.time()
    for c in cases:
        while len(running) >= a.j:
            pid, st = os.wait()
            running.pop(pid)
            bad += st != 0
        pid = os.fork()
        if pid == 0:
            os._exit(child(c, a.out))
        running[pid] = c["name"]
    while running:
        pid, st = os.wait()
        running.pop(pid)
        bad += st != 0
    print("%d cases, %d failed, %.1fs" % (len(cases), bad, time.time() - t0))


if __name__ == "__main__":
    main()
