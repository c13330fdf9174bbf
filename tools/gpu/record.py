"""Records what PyTorch's CUDA allocator does on a GPU, in training cases, Trainer, torch.compile, SDPA, BLAS, cuDNN operators.

usage: python3 record.py OUT [--minutes M] [--jobs N] [--only exclusive|parallel|all] [--parts a,b,...] [-k SUBSTR]
README.md beside this file says what OUT gets. Work files: OUT.work (a file per case; kept if the run dies).
"""
import argparse
import glob
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.environ.get("RECORD_CASES", os.path.join(HERE, "cases"))
ME = os.path.abspath(__file__)
EXCLUSIVE = ("env", "driver", "ctx_lazy", "ctx_eager")
PARALLEL = ("conv", "sdpa", "blas", "ops", "train", "trainer", "compile")
CAP = 12 << 20  # bytes of one output file
PY = os.environ.get("RECORD_PYTHON", sys.executable).split()

os.environ.setdefault("PYTHONUNBUFFERED", "1")


def dump(obj, path):
    tmp = path + ".tmp"
    with open(tmp, "w") as f:
        json.dump(obj, f, separators=(",", ":"), default=str)
    os.replace(tmp, path)


def fail(wd, name):
    os.makedirs(os.path.join(wd, "errors"), exist_ok=True)
    with open(os.path.join(wd, "errors", re.sub(r"\W", "_", name) + ".txt"), "w") as f:
        traceback.print_exc(file=f)


def recorder():
    """record.py without its main()."""
    p = os.path.join(CASES, "device.py")
    text = open(p).read()
    assert text.rstrip().endswith("\nmain()")
    ns = {"__name__": "device", "__file__": p}
    exec(compile(text.rstrip()[: -len("main()")], p, "exec"), ns)
    return ns


class Tap:
    """Allocator events between start() and events(): +bytes an allocation, -bytes a free, in order, as requested."""

    def __init__(self, torch):
        self.torch = torch

    def start(self):
        h = self.torch.cuda.memory._record_memory_history
        h(enabled=None)
        h(enabled="all", context=None, stacks="python", max_entries=200000)

    def events(self):
        self.torch.cuda.synchronize()
        tr = self.torch.cuda.memory._snapshot()["device_traces"][0]
        return [e["size"] if e["action"] == "alloc" else -e["size"] for e in tr if e["action"] in ("alloc", "free_requested")]


def versions():
    import torch
    r = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": None, "gpu": None}
    try:
        r["cudnn"] = torch.backends.cudnn.version()
        r["gpu"] = torch.cuda.get_device_name(0)
    except Exception as e:  # noqa: BLE001
        r["error"] = str(e)[:200]
    return r


# ---- alone on the GPU: the process imports torch, then waits for its turn
def ctx(rec):
    import torch
    smi = rec["smi"]
    rows = []

    def apps():
        try:
            return subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20).stdout.strip()
        except Exception as e:  # noqa: BLE001
            return str(e)

    def rss():
        return {k: int(v.split()[0]) for k, v in (x.split(":") for x in open("/proc/self/status") if x.startswith(("VmRSS", "VmHWM", "RssAnon")))}

    def mark(name):
        try:
            torch.cuda.synchronize()
            f, t = torch.cuda.mem_get_info()
            rows.append({"after": name, "free": f, "total": t, "reserved": torch.cuda.memory_reserved(), "allocated": torch.cuda.memory_allocated(), "seconds": round(time.time() - t0, 3), "rss_kib": rss(),
                         **({"smi": smi(), "apps": apps()} if name in ("context", "all") else {})})
        except Exception as e:  # noqa: BLE001
            rows.append({"after": name, "error": str(e)[:300]})

    t0 = time.time()
    r = {"before": smi(), "CUDA_MODULE_LOADING": os.environ.get("CUDA_MODULE_LOADING"), "rows": rows, "pid": os.getpid()}
    torch.cuda.init()
    torch.cuda.mem_get_info()
    mark("context")

    def op(name, f):
        try:
            f()
        except Exception as e:  # noqa: BLE001
            rows.append({"after": name, "error": str(e)[:300]})
        mark(name)

    F = torch.nn.functional
    R = lambda *s, **k: torch.randn(*s, device="cuda", requires_grad=True, **k)  # noqa: E731
    bf = {"dtype": torch.bfloat16}
    keep = []
    op("tensor", lambda: keep.append(torch.zeros(1, device="cuda")))
    op("elementwise", lambda: (torch.ones(1000, device="cuda") * 2 + 1).sum())
    op("gemm_fp32", lambda: R(256, 256) @ R(256, 256))
    op("gemm_fp32_backward", lambda: (R(256, 256) @ R(256, 256)).sum().backward())
    op("gemm_bf16", lambda: (R(256, 256, **bf) @ R(256, 256, **bf)).sum().backward())
    op("linear_bias_bf16", lambda: F.linear(R(256, 256, **bf), R(256, 256, **bf), R(256, **bf)).sum().backward())
    op("conv_forward", lambda: F.conv2d(R(4, 8, 32, 32), R(8, 8, 3, 3)))
    op("conv_backward", lambda: F.conv2d(R(4, 8, 32, 32), R(8, 8, 3, 3)).sum().backward())
    op("conv_bf16", lambda: F.conv2d(R(4, 64, 32, 32, **bf), R(64, 64, 3, 3, **bf)).sum().backward())
    op("batch_norm", lambda: torch.nn.BatchNorm2d(8, device="cuda")(R(4, 8, 32, 32)).sum().backward())
    op("layer_norm_softmax_ce", lambda: F.cross_entropy(F.layer_norm(R(64, 256), (256,)), torch.zeros(64, dtype=torch.int64, device="cuda")).backward())
    op("sdpa_bf16", lambda: F.scaled_dot_product_attention(R(1, 4, 256, 64, **bf), R(1, 4, 256, 64, **bf), R(1, 4, 256, 64, **bf), is_causal=True).sum().backward())
    op("sdpa_fp32", lambda: F.scaled_dot_product_attention(R(1, 4, 256, 64), R(1, 4, 256, 64), R(1, 4, 256, 64)).sum().backward())

    def adam():
        p = [R(256, 256) for _ in range(4)]
        for x in p:
            x.grad = torch.zeros_like(x)
        torch.optim.AdamW(p).step()
        torch.nn.utils.clip_grad_norm_(p, 1.0)
    op("adamw_clip", adam)
    op("lstm", lambda: torch.nn.LSTM(64, 64, device="cuda")(R(8, 4, 64))[0].sum().backward())
    op("embedding_dropout", lambda: F.dropout(F.embedding(torch.zeros(64, dtype=torch.int64, device="cuda"), R(1000, 64))).sum().backward())
    op("all", lambda: None)
    return r


def exclusive_child(part, wd):
    rec = recorder()
    import torch  # noqa: F401
    print("ready", flush=True)
    sys.stdin.readline()
    r = {"env": rec["part_env"], "driver": rec["part_driver"]}.get(part, lambda: ctx(rec))()
    dump(r, os.path.join(wd, "rest", part + ".json"))


def exclusive(wd, parts, end, stop):
    """All import at once, and take turns on the GPU."""
    ps = {}
    for p in parts:
        env = dict(os.environ)
        if p.startswith("ctx_"):
            env["CUDA_MODULE_LOADING"] = p[4:].upper()
        log = open(os.path.join(wd, "log", p + ".txt"), "w")
        ps[p] = subprocess.Popen(PY + [ME, wd, "--do", p], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, text=True, start_new_session=True)
    for p in parts:
        t0 = time.time()
        try:
            try:
                ps[p].stdin.write("go\n")
                ps[p].stdin.flush()
            except OSError:
                pass
            until = time.time() + max(3, min(40 if p == parts[0] else 25, end - time.time()))
            while ps[p].poll() is None and time.time() < until and not stop:
                time.sleep(0.02)
            rc = ps[p].poll()
            if rc is None:
                raise subprocess.TimeoutExpired(p, 0)
        except subprocess.TimeoutExpired:
            kill(ps[p])
            rc = "timeout"
        tail = open(os.path.join(wd, "log", p + ".txt")).read().strip()
        if rc:
            with open(os.path.join(wd, "errors", p + ".txt"), "w") as f:
                f.write(tail[-3000:] or str(rc))
        print("%-10s %s %.1fs %s" % (p, "ok" if rc == 0 else "FAILED rc %s" % rc, time.time() - t0, tail.split("\n")[-1][:200] if rc else ""), flush=True)


def kill(p):
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        p.wait(timeout=5)
    except Exception:  # noqa: BLE001
        pass


# ---- scaled_dot_product_attention
def sdpa_grid():
    g, seen = [], set()

    def add(dt, hd, s, variant="none", gqa=False, layout="bshd", skv=None, bh=None, forced=True):
        b, h = bh or ((2, 8) if s <= 2048 else (1, 4))
        row = dict(dtype=dt, head_dim=hd, seq=s, kv=skv or s, batch=b, heads=h, kv_heads=h // 4 if gqa else h, variant=variant, gqa=gqa, layout=layout, forced=forced)
        k = json.dumps(row)
        if k not in seen:
            seen.add(k)
            g.append(row)

    for s in (512, 2048, 1024, 128, 4096, 8192):
        for v in ("causal", "none"):
            for hd in (64, 128):
                add("bfloat16", hd, s, v)
    for v in ("mask", "dropout", "causal_dropout", "float_mask"):
        for hd in (64, 128):
            for s in (512, 2048):
                add("bfloat16", hd, s, v)
    for hd in (80, 96, 192, 256):
        for s in (512, 2048):
            for v in ("causal", "none"):
                add("bfloat16", hd, s, v)
    for s in (77, 1000, 1025, 1, 197):
        for v in ("none", "causal", "mask"):
            add("bfloat16", 64, s, v)
    for s in (512, 2048):
        for v in ("causal", "none", "mask", "dropout"):
            add("bfloat16", 128, s, v, gqa=True)
    for dt in ("float16", "float32"):
        for s in (512, 2048):
            for v in ("causal", "none", "mask", "dropout"):
                for hd in (64, 128):
                    add(dt, hd, s, v)
    for kv in (77, 2048):
        add("bfloat16", 64, 512, "none", skv=kv)
        add("bfloat16", 128, 512, "mask", skv=kv)
    for bh in ((1, 1), (8, 12), (1, 32), (16, 16), (3, 5)):
        add("bfloat16", 64, 512, "causal", bh=bh)
        add("bfloat16", 128, 1024, "causal", bh=bh)
    for hd in (64, 128):
        add("bfloat16", hd, 512, "causal", layout="bhsd")
        add("bfloat16", hd, 512, "causal", layout="packed")
        add("bfloat16", hd, 512, "mask", layout="packed")
    for dt in ("bfloat16", "float16", "float32"):
        for hd in (32, 64, 72, 80, 96, 128, 160, 192, 256, 512):
            for s in (128, 512, 1000, 1024, 2048, 4096):
                for v in ("causal", "none", "mask", "dropout"):
                    for gqa in (False, True):
                        add(dt, hd, s, v, gqa=gqa)
    return g


def sdpa_row(torch, tap, r):
    F = torch.nn.functional
    from torch.nn.attention import SDPBackend, sdpa_kernel
    dt = getattr(torch, r["dtype"])
    B, H, K, S, T, D = r["batch"], r["heads"], r["kv_heads"], r["seq"], r["kv"], r["head_dim"]
    if r["layout"] == "packed":
        x = torch.randn(B, S, 3 * H * D, device="cuda", dtype=dt, requires_grad=True)
        leaves = [x]
        make = lambda: [t.view(B, S, H, D).transpose(1, 2) for t in x.split(H * D, 2)]  # noqa: E731
    else:
        sh = lambda h, s: (B, s, h, D) if r["layout"] == "bshd" else (B, h, s, D)  # noqa: E731
        leaves = [torch.randn(*sh(h, s), device="cuda", dtype=dt, requires_grad=True) for h, s in ((H, S), (K, T), (K, T))]
        make = lambda: [t.transpose(1, 2) if r["layout"] == "bshd" else t for t in leaves]  # noqa: E731
    v = r["variant"]
    kw = {}
    if "causal" in v:
        kw["is_causal"] = True
    if "dropout" in v:
        kw["dropout_p"] = 0.1
    if v == "mask":
        m = torch.ones(B, 1, S, T, dtype=torch.bool, device="cuda")
        m[..., 0] = True
        m[0, :, :, T // 2 + 1:] = False
        kw["attn_mask"] = m
    elif v == "float_mask":
        kw["attn_mask"] = torch.zeros(B, 1, S, T, dtype=dt, device="cuda")
    if r["gqa"]:
        kw["enable_gqa"] = True
    try:
        q, k, w = make()
        r["choice"] = int(torch._fused_sdp_choice(q, k, w, kw.get("attn_mask"), kw.get("dropout_p", 0.0), kw.get("is_causal", False), **({"enable_gqa": True} if r["gqa"] else {})))
        del q, k, w
    except Exception as e:  # noqa: BLE001
        r["choice"] = str(e).split("\n")[0][:160]
    res = r["events"] = {}
    for name in ("default", "CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        if name != "default" and not r["forced"] or name == "MATH" and B * H * S * T * 4 > 1 << 30:
            continue
        o = res[name] = {}
        try:
            import contextlib
            import warnings
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for it in (0, 1):
                    with sdpa_kernel([getattr(SDPBackend, name)]) if name != "default" else contextlib.nullcontext():
                        q, k, w = make()
                        tap.start()
                        y = F.scaled_dot_product_attention(q, k, w, **kw)
                        f = tap.events()
                        g = torch.empty_like(y).normal_()
                        node = type(y.grad_fn).__name__
                        tap.start()
                        y.backward(g)
                        b = tap.events()
                    if it == 0:
                        o.update(forward=f, backward=b, node=node, strides=list(y.stride()))
                    else:
                        if f != o["forward"]:
                            o["forward2"] = f
                        if b != o["backward"]:
                            o["backward2"] = b
                    for t in leaves:
                        t.grad = None
                    del y, g, q, k, w
        except Exception as e:  # noqa: BLE001
            o["error"] = str(e).split("\n")[0][:160]
            if lost(e):
                raise
            y = g = q = k = w = None
            for t in leaves:
                t.grad = None


def lost(e):
    """The CUDA context is of no more use."""
    return any(w in str(e) for w in ("CUDA error", "device-side", "CUDA driver error", "illegal memory access", "launch failure"))


START = [0]  # row to begin with, after a crash


def loop(wd, part, rows, limit, f):
    """Runs f(row) of each row until the time is over; what is there is written every few seconds, and the row at hand always."""
    import faulthandler
    import torch
    faulthandler.enable()
    at = os.path.join(wd, "parts", part + ".at")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    t0 = last = time.time()
    done, skipped = [], 0
    path = os.path.join(wd, "parts", "%s.%d.json" % (part, START[0]))
    state = dict(versions(), part=part, of=len(rows), rows=done)
    stop = []
    signal.signal(signal.SIGTERM, lambda *a: stop.append(1))
    code = 0
    for i, r in enumerate(rows):
        if i < START[0]:
            continue
        if time.time() - t0 > limit or stop:
            break
        with open(at, "w") as fh:
            fh.write(str(i))
        t1 = time.time()
        try:
            f(r)
        except Exception as e:  # noqa: BLE001
            r["error"] = str(e).split("\n")[0][:300]
            skipped += 1
            if skipped == 1:
                fail(wd, part)
            if lost(e):
                r["lost"] = True
                done.append(r)
                code = 3
                break
        r["ms"] = round(1e3 * (time.time() - t1), 1)
        done.append(r)
        if i % 25 == 24:
            torch.cuda.empty_cache()
        if time.time() - last > 6:
            last = time.time()
            dump(state, path)
    state["seconds"] = round(time.time() - t0, 1)
    dump(state, path)
    print("%s: %d of %d rows, %d failed" % (part, len(done), len(rows), skipped), flush=True)
    os._exit(code)


def part_sdpa(wd, limit, shard, shards):
    import torch
    tap = Tap(torch)
    rows = sdpa_grid()[shard::shards]
    loop(wd, "sdpa%d" % shard, rows, limit, lambda r: sdpa_row(torch, tap, r))


# ---- cuBLAS and cuBLASLt
def part_blas(wd, limit):
    import torch
    F = torch.nn.functional
    tap = Tap(torch)
    sizes = ((32, 1024, 2048), (4096, 1024, 1024), (512, 768, 3072), (1, 1024, 1024), (4096, 4096, 4096), (128, 8, 8), (77, 100, 1000), (1024, 1021, 513), (16384, 768, 2304), (2048, 768, 50257), (64, 16384, 64), (65536, 64, 64))
    rows = []
    for op in ("linear_bias", "linear", "addmm_gelu", "linear_3d_bias", "mm", "bmm", "baddbmm", "linear_bias_strided", "addmm_2d", "linear_relu", "scaled_mm_fp8"):
        for dt in ("float32", "tf32", "bfloat16", "float16"):
            if op == "scaled_mm_fp8" and dt != "bfloat16":
                continue
            for s in sizes:
                rows.append(dict(op=op, dtype=dt, m=s[0], k=s[1], n=s[2], lib="default"))
    for lib in ("cublas", "cublaslt"):
        for op in ("linear_bias", "mm", "bmm"):
            for dt in ("float32", "bfloat16"):
                for s in sizes[:6]:
                    rows.append(dict(op=op, dtype=dt, m=s[0], k=s[1], n=s[2], lib=lib))

    def row(r):
        dt = torch.float32 if r["dtype"] == "tf32" else getattr(torch, r["dtype"])
        torch.backends.cuda.matmul.allow_tf32 = r["dtype"] == "tf32"
        try:
            torch.backends.cuda.preferred_blas_library(r["lib"])
        except Exception as e:  # noqa: BLE001
            r["lib_error"] = str(e)[:100]
        m, k, n = r["m"], r["k"], r["n"]
        R = lambda *s: torch.randn(*s, device="cuda", dtype=dt, requires_grad=True)  # noqa: E731
        op = r["op"]
        if op in ("linear_bias", "linear_relu"):
            a = [R(m, k), R(n, k), R(n)]
            f = (lambda: F.linear(*a)) if op == "linear_bias" else (lambda: torch._addmm_activation(a[2], a[0], a[1].t()))
        elif op == "addmm_gelu":
            a = [R(m, k), R(n, k), R(n)]
            f = lambda: torch._addmm_activation(a[2], a[0], a[1].t(), use_gelu=True)  # noqa: E731
        elif op == "linear":
            a = [R(m, k), R(n, k)]
            f = lambda: F.linear(*a)  # noqa: E731
        elif op == "linear_3d_bias":
            a = [R(4, max(1, m // 4), k), R(n, k), R(n)]
            f = lambda: F.linear(*a)  # noqa: E731
        elif op == "linear_bias_strided":
            a = [R(max(1, m // 4), 4, k), R(n, k), R(n)]
            f = lambda: F.linear(a[0].transpose(0, 1), a[1], a[2])  # noqa: E731
        elif op == "addmm_2d":
            a = [R(m, n), R(m, k), R(k, n)]
            f = lambda: torch.addmm(*a)  # noqa: E731
        elif op == "mm":
            a = [R(m, k), R(k, n)]
            f = lambda: a[0] @ a[1]  # noqa: E731
        elif op in ("bmm", "baddbmm"):
            b = 8 if m * n < 1 << 24 else 2
            a = [R(b, m, k), R(b, k, n)] + ([R(b, m, n)] if op == "baddbmm" else [])
            f = (lambda: torch.bmm(*a)) if op == "bmm" else (lambda: torch.baddbmm(a[2], a[0], a[1]))
            r["b"] = b
        else:
            one = torch.ones((), device="cuda")
            a8 = [torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn), torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)]
            a = []
            f = lambda: torch._scaled_mm(a8[0], a8[1].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)  # noqa: E731
        grad = op not in ("addmm_gelu", "linear_relu", "scaled_mm_fp8")
        try:
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            r["cleared"] = True
        except Exception:  # noqa: BLE001
            r["cleared"] = False
        for it in (1, 2):
            with torch.set_grad_enabled(grad):
                tap.start()
                y = f()
                r["forward%d" % it] = tap.events()
                if grad:
                    g = torch.empty_like(y).normal_()
                    tap.start()
                    y.backward(g)
                    r["backward%d" % it] = tap.events()
                    g = None
                    for t in a:
                        t.grad = None
                y = None

    loop(wd, "blas", rows, limit, row)


# ---- operators of cuDNN and others with workspaces
def part_ops(wd, limit):
    import torch
    nn, F = torch.nn, torch.nn.functional
    tap = Tap(torch)
    rnn, conv, norm, ctc, other = [], [], [], [], []
    for kind in ("LSTM", "GRU", "RNN"):
        for dt in ("float32", "bfloat16", "float16"):
            for (i, h, l, bi, p, s, b, proj) in ((256, 512, 2, False, 0.0, 64, 16, 0), (256, 512, 1, False, 0.0, 64, 16, 0), (256, 512, 2, True, 0.0, 64, 16, 0), (256, 512, 3, False, 0.3, 64, 16, 0), (256, 512, 2, True, 0.3, 64, 16, 0),
                                                 (128, 128, 1, False, 0.0, 100, 32, 0), (64, 1024, 1, False, 0.0, 32, 64, 0), (100, 77, 2, True, 0.1, 33, 5, 0), (512, 512, 4, False, 0.2, 128, 64, 0), (32, 32, 1, False, 0.0, 512, 128, 0),
                                                 (256, 512, 2, False, 0.0, 64, 16, 128), (1, 16, 1, False, 0.0, 10, 1, 0)):
                if proj and kind != "LSTM":
                    continue
                for bf in (True, False) if kind == "LSTM" and dt == "float32" else (True,):
                    rnn.append(dict(op=kind, dtype=dt, input=i, hidden=h, layers=l, bidirectional=bi, dropout=p, seq=s, batch=b, proj=proj, batch_first=bf))
    for dt in ("float32", "bfloat16", "float16"):
        for cl in (False, True):
            for d, cin, cout, k, st, pad, sz, b in ((2, 64, 32, 2, 2, 0, 32, 4), (2, 128, 64, 4, 2, 1, 16, 16), (2, 512, 256, 4, 2, 1, 8, 32), (2, 256, 128, 3, 1, 1, 32, 8), (2, 64, 3, 4, 2, 1, 64, 16), (1, 64, 32, 4, 2, 1, 256, 8), (3, 32, 16, 2, 2, 0, 16, 2)):
                conv.append(dict(op="ConvTranspose%dd" % d, dtype=dt, channels_last=cl, cin=cin, cout=cout, k=k, stride=st, pad=pad, size=sz, batch=b))
            for d, cin, cout, k, st, pad, sz, b in ((3, 3, 32, 3, 1, 1, 32, 2), (3, 32, 64, 3, 1, 1, 16, 4), (3, 64, 64, 3, 2, 1, 16, 4), (3, 64, 128, 1, 1, 0, 8, 8), (1, 80, 512, 3, 1, 1, 1500, 4), (1, 512, 512, 10, 5, 0, 4000, 2), (1, 64, 64, 31, 1, 15, 400, 8)):
                conv.append(dict(op="Conv%dd" % d, dtype=dt, channels_last=cl, cin=cin, cout=cout, k=k, stride=st, pad=pad, size=sz, batch=b))
            for c, sz, b in ((64, 56, 32), (64, 112, 8), (512, 7, 32), (3, 224, 4), (100, 13, 5)):
                for mode in ("train", "eval"):
                    norm.append(dict(op="BatchNorm2d", dtype=dt, channels_last=cl, c=c, size=sz, batch=b, mode=mode, weights=dt))
                    if dt != "float32":
                        norm.append(dict(op="BatchNorm2d", dtype=dt, channels_last=cl, c=c, size=sz, batch=b, mode=mode, weights="float32"))
                norm.append(dict(op="GroupNorm", dtype=dt, channels_last=cl, c=c if c % 4 == 0 else c, size=sz, batch=b, mode="train", weights=dt, groups=4 if c % 4 == 0 else 1))
            norm.append(dict(op="InstanceNorm2d", dtype=dt, channels_last=cl, c=64, size=56, batch=8, mode="train", weights=dt))
        for n, d in ((4096, 768), (1024, 4096), (77, 1000)):
            norm.append(dict(op="LayerNorm", dtype=dt, c=d, batch=n, mode="train", weights=dt))
            norm.append(dict(op="RMSNorm", dtype=dt, c=d, batch=n, mode="train", weights=dt))
    for t, n, c, s in ((50, 16, 20, 30), (200, 8, 32, 40), (500, 32, 64, 100), (100, 4, 128, 20)):
        for lib in ("native", "cudnn", "cuda_targets"):
            for dt in ("float32",):
                ctc.append(dict(op="ctc_loss", dtype=dt, T=t, batch=n, classes=c, target=s, variant=lib))
    for dt in ("float32", "bfloat16"):
        for op in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "interpolate_bilinear", "embedding", "embedding_large", "embedding_bag", "cross_entropy", "softmax", "dropout", "gelu", "topk", "sort", "cumsum", "multinomial", "argmax", "sum_large", "norm_large",
                   "index_add", "scatter_add", "gather", "index_select", "nonzero", "unique", "where", "logsumexp", "var", "std_all", "median", "clip_grad", "grid_sample", "pixel_shuffle", "fft", "cholesky", "svd", "qr", "inv", "einsum", "cdist", "index_put", "masked_select", "randperm"):
            other.append(dict(op=op, dtype=dt))
    # one of each kind first
    rows = []
    import itertools
    for t in itertools.zip_longest(rnn, conv, norm, ctc, other):
        rows += [r for r in t if r]

    def build(r):
        dt = getattr(torch, r["dtype"])
        op, dev = r["op"], {"device": "cuda"}
        if op in ("LSTM", "GRU", "RNN"):
            m = getattr(nn, op)(r["input"], r["hidden"], r["layers"], bidirectional=r["bidirectional"], dropout=r["dropout"], batch_first=r["batch_first"], **({"proj_size": r["proj"]} if r["proj"] else {})).to("cuda", dt)
            x = torch.randn(*((r["batch"], r["seq"]) if r["batch_first"] else (r["seq"], r["batch"])), r["input"], dtype=dt, requires_grad=True, **dev)
            return m, [x], lambda: m(x)[0]
        if op.startswith("Conv"):
            m = getattr(nn, op)(r["cin"], r["cout"], r["k"], r["stride"], r["pad"]).to("cuda", dt)
            d = int(op[-2])
            x = torch.randn(r["batch"], r["cin"], *[r["size"]] * d, dtype=dt, **dev)
            if r["channels_last"] and d > 1:
                mf = torch.channels_last if d == 2 else torch.channels_last_3d
                m, x = m.to(memory_format=mf), x.to(memory_format=mf)
            x.requires_grad_()
            return m, [x], lambda: m(x)
        if op.endswith(("Norm2d", "Norm")):
            wd_ = getattr(torch, r["weights"])
            c = r["c"]
            m = {"BatchNorm2d": lambda: nn.BatchNorm2d(c), "InstanceNorm2d": lambda: nn.InstanceNorm2d(c, affine=True), "GroupNorm": lambda: nn.GroupNorm(r["groups"], c), "LayerNorm": lambda: nn.LayerNorm(c), "RMSNorm": lambda: nn.RMSNorm(c)}[op]().to("cuda", wd_)
            m.train(r["mode"] == "train")
            x = torch.randn(*((r["batch"], c) if "size" not in r else (r["batch"], c, r["size"], r["size"])), dtype=dt, **dev)
            if r.get("channels_last"):
                x = x.to(memory_format=torch.channels_last)
            x.requires_grad_()
            return m, [x], lambda: m(x)
        if op == "ctc_loss":
            x = torch.randn(r["T"], r["batch"], r["classes"], requires_grad=True, **dev)
            n, s = r["batch"], r["target"]
            dtype = torch.int32 if r["variant"] == "cudnn" else torch.int64
            tgt = torch.randint(1, r["classes"], (n, s) if r["variant"] != "cudnn" else (n * s,), dtype=dtype)
            il, tl = torch.full((n,), r["T"], dtype=dtype), torch.full((n,), s, dtype=dtype)
            if r["variant"] == "cuda_targets":
                tgt, il, tl = tgt.cuda(), il.cuda(), tl.cuda()
            elif r["variant"] == "native":
                tgt = tgt.cuda()
            return None, [x], lambda: F.ctc_loss(F.log_softmax(x, 2), tgt, il, tl)
        img = lambda: torch.randn(8, 64, 56, 56, dtype=dt, requires_grad=True, **dev)  # noqa: E731
        mat = lambda a=4096, b=1024: torch.randn(a, b, dtype=dt, requires_grad=True, **dev)  # noqa: E731
        idx = lambda n, top: torch.randint(0, top, (n,), **dev)  # noqa: E731
        if op in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "interpolate_bilinear", "grid_sample", "pixel_shuffle"):
            x = img()
            grid = torch.rand(8, 28, 28, 2, dtype=dt, **dev) * 2 - 1
            return None, [x], {"max_pool2d": lambda: F.max_pool2d(x, 3, 2, 1), "avg_pool2d": lambda: F.avg_pool2d(x, 2), "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(x, 1), "pixel_shuffle": lambda: F.pixel_shuffle(x, 2),
                               "interpolate_bilinear": lambda: F.interpolate(x, scale_factor=2, mode="bilinear"), "grid_sample": lambda: F.grid_sample(x, grid, align_corners=False)}[op]
        if op in ("embedding", "embedding_large", "embedding_bag"):
            w = mat(50257 if op == "embedding_large" else 1000, 256)
            i = torch.randint(0, 1000, (16, 512 if op != "embedding" else 64), **dev)
            return None, [w], (lambda: F.embedding_bag(i, w, mode="mean")) if op == "embedding_bag" else (lambda: F.embedding(i, w))
        x = mat(512, 512) if op in ("cholesky", "svd", "qr", "inv", "median", "unique", "cdist") else mat(1 << 14, 1 << 10) if op.endswith("large") else mat()
        i1, i2 = idx(4096, 4096), torch.randint(0, 1024, (4096, 1024), **dev)
        if op == "cholesky":
            base = torch.randn(512, 512, dtype=dt, **dev)
            spd = (base @ base.t() + 512 * torch.eye(512, dtype=dt, **dev)).requires_grad_()
            return None, [spd], lambda: torch.linalg.cholesky(spd)
        y = mat(2048, 1024)

        def put():
            z = torch.zeros_like(x)
            return z.index_put((i1,), x, accumulate=True)
        return None, [x], {
            "cross_entropy": lambda: F.cross_entropy(x, i2[:, 0]), "softmax": lambda: F.softmax(x, -1), "dropout": lambda: F.dropout(x, 0.1), "gelu": lambda: F.gelu(x), "topk": lambda: x.topk(50)[0], "sort": lambda: x.sort(-1)[0], "cumsum": lambda: x.cumsum(0),
            "multinomial": lambda: torch.multinomial(F.softmax(x.detach().float(), -1), 1), "argmax": lambda: x.argmax(-1), "sum_large": lambda: x.sum(), "norm_large": lambda: x.norm(), "index_add": lambda: torch.zeros_like(x).index_add(0, i1, x),
            "scatter_add": lambda: torch.zeros_like(x).scatter_add(1, i2, x), "gather": lambda: x.gather(1, i2), "index_select": lambda: x.index_select(0, i1), "nonzero": lambda: x.detach().gt(0).nonzero(), "unique": lambda: x.detach().unique(),
            "where": lambda: torch.where(x > 0, x, 0.0), "logsumexp": lambda: x.logsumexp(-1), "var": lambda: x.var(-1), "std_all": lambda: x.std(), "median": lambda: x.median(), "clip_grad": lambda: torch.nn.utils.clip_grad_norm_([x], 1.0) if x.grad is not None else x.sum(),
            "fft": lambda: torch.fft.rfft(x, dim=-1).abs(), "svd": lambda: torch.linalg.svdvals(x), "qr": lambda: torch.linalg.qr(x)[0], "inv": lambda: torch.linalg.inv(x), "einsum": lambda: torch.einsum("ik,jk->ij", x, y), "cdist": lambda: torch.cdist(x, x[:256]),
            "index_put": put, "masked_select": lambda: x.masked_select(x > 0), "randperm": lambda: torch.randperm(100000, **dev)}[op]

    def row(r):
        m, leaves, f = build(r)
        ps = leaves + (list(m.parameters()) if m is not None else [])
        for it in (1, 2):
            tap.start()
            y = f()
            r["forward%d" % it] = tap.events()
            if y.requires_grad:
                g = torch.empty_like(y).normal_()
                tap.start()
                y.backward(g)
                r["backward%d" % it] = tap.events()
                g = None
                if it == 1:
                    r["node"], r["out"], r["out_strides"] = type(y.grad_fn).__name__, list(y.shape), list(y.stride())
            y = None
            for p in ps:
                p.grad = None
        if m is not None and r["op"] in ("LSTM", "GRU", "RNN"):
            m.eval()
            with torch.no_grad():
                tap.start()
                y = f()
                r["no_grad"] = tap.events()

    loop(wd, "ops", rows, limit, row)


# ---- fork server
def extra_train():
    """Cases of sizes beyond train_cases.matrix()."""
    out = {}

    def add(name, model, batch, precision="fp32", optimizer="adamw", features=(), args=None, gib=6, **kw):
        out["x_" + name] = dict(dict(name="x_" + name, model=model, args=args or {}, batch=batch, precision=precision, optimizer=optimizer, features=list(features), arch="sm80", gib=gib), **kw)

    for p in ("fp32", "amp_bf16"):
        add("resnet50_b32_" + p, "resnet", 32, p, "sgd_momentum", args={"depth": 50}, gib=6)
        add("unet_b8_" + p, "unet", 8, p, "adam", args={}, gib=4)
        add("gpt2_b4_" + p, "gpt", 4, p, args={"seq": 1024}, gib=14)
        add("llama1k_b2_" + p, "llama", 2, p, args={"d": 1024, "heads": 16, "kv": 4, "layers": 4, "ff": 2816, "seq": 1024}, gib=8)
        add("bertbase_b16_" + p, "bert", 16, p, args={"seq": 128}, gib=6)
        add("lstm_bi_b32_" + p, "lstm", 32, p, "adam", args={"seq": 64, "bi": True, "layers": 3, "dropout": 0.2}, gib=3)
        add("vgg16bn_b16_" + p, "vgg", 16, p, "sgd_momentum", args={"depth": 16, "bn": True}, gib=10)
        for net in ("efficientnet_b0", "densenet121", "convnext_tiny", "mobilenet_v3_large", "regnet_y_400mf", "swin_t"):
            add("tv_%s_b16_%s" % (net, p), "tv", 16, p, "sgd_momentum", args={"net": net}, gib=8)
    for p in ("fp32", "amp_bf16", "amp_fp16", "pure_bf16"):
        add("resnet50_b16_cl_" + p, "resnet", 16, p, "sgd_momentum", ["channels_last"], args={"depth": 50}, gib=5)
    for p in ("fp32", "amp_bf16"):
        add("resnet18_b32_cudnn_benchmark_" + p, "resnet", 32, p, "sgd_momentum", args={"depth": 18}, gib=12, switches=["cudnn_benchmark"])
        add("unet_b4_cudnn_benchmark_" + p, "unet", 4, p, "adam", gib=8, switches=["cudnn_benchmark"])
    add("resnet18_b32_deterministic", "resnet", 32, "fp32", "sgd_momentum", args={"depth": 18}, gib=6, switches=["deterministic"])
    add("gpts_b4_tf32", "gpt", 4, "fp32", args={"d": 256, "heads": 8, "layers": 4, "vocab": 8192, "ctx": 256, "seq": 256, "dropout": 0.1}, gib=2, switches=["tf32"])
    return out


def train_cases_all():
    import train_cases as tc
    m = {n: c for n, c in tc.matrix().items() if c["arch"] == "sm80"}  # the others are the same on one GPU
    return dict(m, **extra_train())


def run_train(cfg):
    import torch
    import models
    import train_cases as tc
    tc.no_init = lambda: None
    if cfg.get("alloc_conf"):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = cfg["alloc_conf"]
    for s in cfg.get("switches", ()):
        if s == "cudnn_benchmark":
            torch.backends.cudnn.benchmark = True
        elif s == "deterministic":
            torch.backends.cudnn.deterministic = True
        elif s == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
    fac, mkx, mky, loss = models.KINDS[cfg["model"]]

    def real(f):
        def g(*a):
            t = f(*a)
            return t.normal_() if t.is_floating_point() else t.random_(0, 2)
        return g
    models.KINDS[cfg["model"]] = (fac, real(mkx), real(mky), loss)
    r = tc.run_case(cfg)
    r["events"] = {k: v for k, v in r["events"].items() if k in ("setup", "step1", "step2")}
    r["cudnn"], r["cuda"] = torch.backends.cudnn.version(), torch.version.cuda
    return r


def trainer_matrix():
    import trainer_cases as t
    small = dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1376, vocab_size=32000, max_position_embeddings=2048)
    t.NETS["qwen2"] = dict(model="Qwen2ForCausalLM", config_cls="Qwen2Config", task="causal_lm", hf=dict(small))
    t.NETS["qwen3"] = dict(model="Qwen3ForCausalLM", config_cls="Qwen3Config", task="causal_lm", hf=dict(small, head_dim=64))
    t.NETS["gemma"] = dict(model="GemmaForCausalLM", config_cls="GemmaConfig", task="causal_lm", hf=dict(small, head_dim=64))
    t.NETS["gemma2"] = dict(model="Gemma2ForCausalLM", config_cls="Gemma2Config", task="causal_lm", hf=dict(small, head_dim=64, sliding_window=128))
    t.NETS["mistral"] = dict(model="MistralForCausalLM", config_cls="MistralConfig", task="causal_lm", hf=dict(small, sliding_window=None))
    nets = ("qwen2", "gemma", "gemma2", "qwen3", "mistral")
    base = {n: c for n, c in t.matrix().items() if n.split("_")[0] not in nets}
    out = {}
    for n, c in base.items():
        opt = c["args"].get("optim", "")
        if c.get("trl") is not None or (c.get("load") or {}).get("bnb") or c.get("arch") == "sm90" or "8bit" in opt or "paged" in opt or opt == "ademamix" or c.get("kbit"):
            continue
        out[n] = dict(c)

    def add(net, tag, batch=4, seq=256, lora=None, dtype=None, **kw):
        own = {k: kw.pop(k) for k in ("mask", "eval_rows", "steps", "attn", "use_cache", "load") if k in kw}
        out["%s_%s" % (net, tag)] = dict(dict(attn="sdpa", use_cache=None, set="base", arch="sm80", mask="ones"), **t.NETS[net], **{"name": "%s_%s" % (net, tag), "batch": batch, "seq": seq, "lora": lora, "dtype": dtype, "args": kw}) | own
    for net in nets:
        add(net, "bf16", bf16=True)
        add(net, "bf16_ckpt", bf16=True, gradient_checkpointing=True)
        add(net, "default")
    for o in ("adamw_torch_fused", "rmsprop", "adagrad"):
        add("llama", "optim_" + o, bf16=True, optim=o)
    add("qwen2", "lora_base_bf16_ckpt", lora=t.QV, dtype="bfloat16", bf16=True, gradient_checkpointing=True)
    add("llama", "b2x1024_bf16", batch=2, seq=1024, bf16=True)
    add("llama", "tf32", tf32=True)
    add("llama", "lora_r64_all", lora=dict(t.QV, r=64, target_modules="all-linear"), dtype="bfloat16", bf16=True, gradient_checkpointing=True)
    add("gpt2", "lora", lora=dict(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True), bf16=True)
    first = ["llama_default", "gpt2_bf16", "qwen2_bf16", "gemma_bf16", "llama_lora_base_bf16_ckpt", "llama_bf16", "llama_bf16_ckpt", "llama_eval", "llama_adafactor", "llama_lora", "gpt2_default", "gemma2_bf16", "qwen3_bf16",
             "llama_lora_base_bf16", "llama_bf16_accum4", "llama_eval_bf16_loss_only", "bertcls_bf16", "vit_bf16", "llama_fp16", "llama_sgd", "llama_optim_adamw_torch_fused", "llama_adamw_torch", "llama_noclip", "llama_pure_bf16", "llama_b8x512_bf16", "gpt2_bf16_ckpt",
             "qwen2_bf16_ckpt", "gemma_bf16_ckpt", "llama_lora_all_linear", "llama_dora", "llama_neftune", "llama_padded", "llama_logging", "llama_smoothing", "llama_ckpt_reentrant", "llama_lora_save_head", "llama_loaded_bf16", "llama_empty_cache", "t5_bf16", "bertmlm_bf16",
             "llama_b2x1024_bf16", "llama_lora_r64_all", "gpt2_lora", "llama_tf32", "qwen2_lora_base_bf16_ckpt", "llama_optim_rmsprop", "llama_optim_adagrad", "llama_pure_bf16_flag", "llama_eval_accumulate", "llama_eager_bf16", "mistral_bf16"]
    order = [n for n in first if n in out] + [n for n in out if n not in first]
    return {n: out[n] for n in order}


def run_trainer(cfg):
    import inspect
    import torch
    import transformers
    import trainer_cases as t
    from transformers import TrainingArguments
    known = inspect.signature(TrainingArguments.__init__).parameters
    cfg = dict(cfg)
    cfg["dropped_args"] = [k for k in cfg["args"] if k not in known]
    cfg["args"] = {k: v for k, v in cfg["args"].items() if k in known}
    if cfg.get("lora"):
        import peft
        ks = inspect.signature(peft.LoraConfig.__init__).parameters
        cfg["dropped_lora"] = [k for k in cfg["lora"] if k not in ks]
        cfg["lora"] = {k: v for k, v in cfg["lora"].items() if k in ks}
    sample = t.sample

    def real(c, conf):  # values instead of zeros: losses must be finite and not all alike
        s = sample(c, conf)
        for k, x in s.items():
            if k == "attention_mask":
                if c.get("mask") == "padded":
                    x[-4:] = 0
            elif k == "labels" and x.dim() == 0:
                pass
            elif x.is_floating_point():
                x.normal_()
            else:
                x.random_(3, 1000)
        return s
    t.sample = real
    transformers.logging.set_verbosity_error()
    r = t.run_case(cfg)
    r["events"] = {k: v for k, v in r["events"].items() if k in ("setup", "step1", "step2", "step3")}
    r["cudnn"], r["cuda"] = torch.backends.cudnn.version(), torch.version.cuda
    return r


def one(kind, name, wd):
    """In a process of its own."""
    sys.path.insert(0, CASES)
    t0 = time.time()
    d = os.path.join(wd, kind)
    if kind == "trainer":
        os.environ["TRAINER_OUT"] = os.path.join(wd, "tmp", name)
    cfg = (train_cases_all if kind == "train" else trainer_matrix)()[name]
    r = (run_train if kind == "train" else run_trainer)(cfg)
    r["total_s"] = round(time.time() - t0, 2)
    dump(r, os.path.join(d, name + ".json"))


def used_mib(wd):
    """Of the whole GPU, as nvidia-smi says every second; 0 if it does not."""
    try:
        with open(os.path.join(wd, "used")) as f:
            return int(f.read().strip().split("\n")[-1])
    except (OSError, ValueError):
        return 0


def server(kind, wd, end, jobs, k):
    """Imports once, forks a child per case; where a fork cannot use CUDA, starts a process per case."""
    sys.path.insert(0, CASES)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # cuInit in the parent would spoil CUDA in its children
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.pop("TORCH_LOGS", None)
    t0 = time.time()
    import torch
    torch.set_num_threads(1)
    import train_cases as tc  # noqa: F401
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    if kind == "trainer":
        import transformers
        for n in ("Trainer", "TrainingArguments", "LlamaForCausalLM", "GPT2LMHeadModel", "Qwen2ForCausalLM", "GemmaForCausalLM"):
            try:
                getattr(transformers, n)
            except Exception:  # noqa: BLE001
                fail(wd, "trainer_import_" + n)
        try:
            import peft  # noqa: F401
        except Exception:  # noqa: BLE001
            fail(wd, "trainer_import_peft")
    else:
        try:
            import torchvision.models  # noqa: F401
        except Exception:  # noqa: BLE001
            pass
    cases = (train_cases_all if kind == "train" else trainer_matrix)()
    mem = json.load(open(os.path.join(HERE, "record.json")))["mem"]
    names = [n for n in cases if k in n]
    if kind == "train":
        fam = {}
        for n in names:
            fam.setdefault("x_" + n.split("_")[1] if n.startswith("x_") else n.split("_")[0], []).append(n)
        names = [n for i in range(400) for l in fam.values() for n in l[i:i + 1]]
    need = {}
    for n in names:
        c = cases[n]
        need[n] = c["gib"] * 1024 if "gib" in c else mem.get(n, 4096)
    print("%s: %d cases, ready after %.1fs, bad fork %s" % (kind, len(names), time.time() - t0, torch.cuda._is_in_bad_fork()), flush=True)

    # can a child use CUDA?
    fork = not torch.cuda.is_initialized() and os.environ.get("SUITE_SPAWN") != "1"
    if fork:
        pid = os.fork()
        if pid == 0:
            try:
                torch.cuda.init()
                torch.zeros(1, device="cuda")
                os._exit(0)
            except BaseException:
                fail(wd, kind + "_fork_test")
                os._exit(1)
        st, t1 = None, time.time()
        while time.time() - t1 < 45:
            p, s = os.waitpid(pid, os.WNOHANG)
            if p:
                st = s
                break
            time.sleep(0.05)
        if st is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        fork = st == 0
        print("%s: fork test %s, %.1fs" % (kind, "ok" if fork else "FAILED: a process per case", time.time() - t1), flush=True)
    limit = 40 if kind == "train" else 60
    budget = (30 if kind == "train" else 16) << 10
    running, done, bad, checked, over = {}, 0, 0, 0.0, False
    stop = []
    signal.signal(signal.SIGTERM, lambda *a: stop.append(1))
    todo = [n for n in names if need[n] <= 30 << 10]
    sys.stdout.flush()
    while todo or running:
        now = time.time()
        if stop or now > end:
            break
        for pid, (n, t, p) in list(running.items()):
            q, st = os.waitpid(pid, os.WNOHANG)
            if q:
                del running[pid]
                done += 1
                if p is not None:
                    p.returncode = st
                if st:
                    bad += 1
                    e = os.path.join(wd, "errors", "%s_%s.txt" % (kind, re.sub(r"\W", "_", n)))
                    if not os.path.exists(e):
                        try:
                            tail = open(os.path.join(wd, "log", "%s_%s.txt" % (kind, n)), errors="replace").read()[-1500:]
                        except OSError:
                            tail = ""
                        with open(e, "w") as f:
                            f.write("status %d after %.0fs (9: killed at the limit)\n%s" % (st, now - t, tail))
            elif now - t > limit:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        try:
            jobs = int(open(os.path.join(wd, "jobs_" + kind)).read())
        except (OSError, ValueError):
            pass
        if todo and len(running) < jobs and now < end - 5:
            used = sum(need[n] + 700 for n, _, _ in running.values())
            if now - checked > 2:
                checked, over = now, used_mib(wd) > 66000
            pick = None if over else next((n for n in todo[:8] if used + need[n] + 700 <= budget), None)
            if pick is not None or not running and not over:
                n = pick or todo[0]
                todo.remove(n)
                if not fork or cases[n].get("alloc_conf"):
                    env = dict(os.environ)
                    if cases[n].get("alloc_conf"):
                        env["PYTORCH_CUDA_ALLOC_CONF"] = cases[n]["alloc_conf"]
                    log = open(os.path.join(wd, "log", "%s_%s.txt" % (kind, n)), "w")
                    p = subprocess.Popen(PY + [ME, wd, "--do", "one", "--kind", kind, "--case", n], stdout=log, stderr=subprocess.STDOUT, env=env)
                    running[p.pid] = (n, now, p)
                else:
                    pid = os.fork()
                    if pid == 0:
                        code = 1
                        try:
                            signal.signal(signal.SIGTERM, signal.SIG_DFL)
                            import faulthandler
                            path = os.path.join(wd, "log", "%s_%s.txt" % (kind, n))
                            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                            os.dup2(fd, 1)
                            os.dup2(fd, 2)
                            faulthandler.enable()
                            faulthandler.dump_traceback_later(limit - 3)
                            one(kind, n, wd)
                            os.remove(path)
                            code = 0
                        except BaseException:
                            fail(wd, "%s_%s" % (kind, n))
                        os._exit(code)
                    running[pid] = (n, now, None)
                continue
        time.sleep(0.02)
    for pid in running:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    print("%s: %d of %d cases, %d failed, %d cut off" % (kind, done, len(names), bad, len(running)), flush=True)
    os._exit(0)


# ---- torch.compile
def compile_one(name, wd):
    case = next(c for c in json.load(open(os.path.join(HERE, "record.json")))["compile"] if c["name"] == name)
    import gc
    t0 = time.time()
    import torch
    d = os.path.join(wd, "tmp", "compile_" + name)
    os.makedirs(d, exist_ok=True)
    path = os.path.join(d, "train.py")
    text = case["script"]
    if os.environ.get("SUITE_BACKEND"):
        text = text.replace("torch.compile(model)", "torch.compile(model, backend=%r)" % os.environ["SUITE_BACKEND"])
    if os.environ.get("SUITE_CPU"):
        text = text.replace('torch.device("cuda")', 'torch.device("cpu")')
    with open(path, "w") as f:
        f.write(text)
    torch.manual_seed(0)
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=4000000)
    gc.collect()
    gc.disable()
    begins, ends, steps, times = [], [], [], []
    count = lambda: len(torch.cuda.memory._snapshot()["device_traces"][0])  # noqa: E731
    reset, peak, reserved = torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved

    def mine():  # called by the script itself, not by what compiles
        return sys._getframe(2).f_code.co_filename == path

    def on_reset(*device):
        if mine():
            begins.append(count())
        reset(*device)

    def on_peak(*device):
        if mine():
            torch.cuda.synchronize()
            ends.append(count())
            st = torch.cuda.memory_stats()
            steps.append({"peak_allocated": peak(), "peak_reserved": reserved(), "peak_requested": st.get("requested_bytes.all.peak"), "end_allocated": torch.cuda.memory_allocated(), "end_reserved": torch.cuda.memory_reserved()})
            times.append(round(time.time() - t0, 2))
        return peak(*device)

    torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated = on_reset, on_peak
    err = None
    try:
        exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path})
    except BaseException:
        err = traceback.format_exc()
        fail(wd, "compile_" + name)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    bounds = [("setup", 0, begins[0] if begins else len(trace))] + [("step%d" % (i + 1), b, e) for i, (b, e) in enumerate(zip(begins, ends))]
    ids, n, events, at = {}, 0, {}, 0
    for label, b, e in bounds:
        for t in trace[at:b]:  # between steps
            if t["action"] == "alloc":
                n += 1
                ids[t["addr"]] = n
            elif t["action"] == "free_requested":
                ids.pop(t["addr"], 0)
        out = events.setdefault(label, [])
        for t in trace[b:e]:
            if t["action"] == "alloc":
                n += 1
                ids[t["addr"]] = n
                out.append([n, t["size"]])
            elif t["action"] == "free_requested":
                out.append(-ids.pop(t["addr"], 0))
        at = e
    r = {"name": name, "arch": "sm90", "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "cudnn": torch.backends.cudnn.version(), "spec": case["spec"], "script": text, "events": events, "steps": steps,
         "step_ends_s": times}
    try:
        import triton
        r["triton"] = triton.__version__
    except Exception:  # noqa: BLE001
        r["triton"] = None
    if len(events.get("step1", ())) > 20000:
        events["step1"] = events["step1"][:20000]
        r["step1_cut"] = True
    if err:
        r["error"] = err[-1500:]
    dump(r, os.path.join(wd, "compile", name + ".json"))
    sys.stdout.flush()
    os._exit(1 if err else 0)


class Compile:
    """The pool of compiled cases: processes of their own."""

    def __init__(self, wd, k):
        self.wd, self.running, self.bad, self.done = wd, {}, 0, 0
        self.todo = [c["name"] for c in json.load(open(os.path.join(HERE, "record.json")))["compile"] if k in c["name"]]
        self.n = len(self.todo)

    def poll(self, jobs, end):
        now = time.time()
        for n, (p, t) in list(self.running.items()):
            rc = p.poll()
            if rc is None and now - t > 120:
                kill(p)
                rc = "timeout"
                with open(os.path.join(self.wd, "errors", "compile_%s.txt" % n), "w") as f:
                    f.write("timeout after 120 s\n")
            if rc is not None:
                kill(p)  # and the workers that compiled for it
                del self.running[n]
                self.done += 1
                if rc:
                    self.bad += 1
                    e = os.path.join(self.wd, "errors", "compile_%s.txt" % n)
                    if not os.path.exists(e):
                        log = open(os.path.join(self.wd, "compile", n + ".log"), errors="replace").read()
                        with open(e, "w") as f:
                            f.write("rc %s\n%s" % (rc, log[-1500:]))
        while self.todo and len(self.running) < jobs and now < end - 20:
            n = self.todo.pop(0)
            d = os.path.join(self.wd, "tmp", "compile_" + n)
            os.makedirs(d, exist_ok=True)
            env = dict(os.environ, TORCH_LOGS="output_code", TORCHINDUCTOR_COMPILE_THREADS="2", TORCHINDUCTOR_CACHE_DIR=os.path.join(d, "inductor"), TRITON_CACHE_DIR=os.path.join(d, "triton"))
            log = open(os.path.join(self.wd, "compile", n + ".log"), "w")
            self.running[n] = (subprocess.Popen(PY + [ME, self.wd, "--do", "compile_one", "--case", n], env=env, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True), now)

    def stop(self):
        for p, _ in self.running.values():
            kill(p)
        print("compile: %d of %d cases, %d failed, %d cut off" % (self.done, self.n, self.bad, len(self.running)), flush=True)


# ---- packing
def lines_gz(path, files, extra=None):
    """A line of JSON per file, gzipped, at most CAP bytes."""
    n = left = 0
    buf = open(path + ".tmp", "wb")
    z = gzip.GzipFile(fileobj=buf, mode="wb", compresslevel=6, mtime=0)
    for f in files:
        try:
            text = open(f).read().strip()
            if extra:
                text = json.dumps(extra(f, json.loads(text)), separators=(",", ":"))
        except Exception as e:  # noqa: BLE001
            print("not packed:", f, e, flush=True)
            continue
        if buf.tell() > CAP:
            left += 1
            continue
        z.write(text.encode() + b"\n")
        n += 1
    z.close()
    buf.close()
    os.replace(path + ".tmp", path)
    return n, left


def pack(out, wd):
    print("packing", flush=True)

    def part(f, *a):
        try:
            return f(*a)
        except Exception:  # noqa: BLE001
            traceback.print_exc()

    def by_time(d):
        return sorted(glob.glob(os.path.join(wd, d, "*.json")), key=os.path.getmtime)

    def with_log(f, r):
        try:
            r["log"] = open(f[:-5] + ".log", errors="replace").read()[: 6 << 20]
        except OSError:
            r["log"] = ""
        return r

    def many():
        for d, name, extra in (("train", "cases.jsonl.gz", None), ("trainer", "trainer.jsonl.gz", None), ("compile", "compile.jsonl.gz", with_log)):
            fs = by_time(d)
            if fs:
                n, left = lines_gz(os.path.join(out, name), fs, extra)
                print("%-18s %d cases%s, %d bytes" % (name, n, ", %d LEFT OUT" % left if left else "", os.path.getsize(os.path.join(out, name))), flush=True)

    def parts():
        for name in ("sdpa", "blas", "ops"):
            got = None
            for p in sorted(glob.glob(os.path.join(wd, "parts", name + "*.json"))):
                r = json.load(open(p))
                if got is None:
                    got = r
                else:
                    got["rows"] += r["rows"]
            if got:
                with gzip.open(os.path.join(out, name + ".json.gz"), "wt", compresslevel=6) as f:
                    json.dump(got, f, separators=(",", ":"))
                print("%-18s %d rows, %d with errors" % (name + ".json.gz", len(got["rows"]), sum("error" in r for r in got["rows"])), flush=True)

    def rest():
        keep = {}
        path = os.path.join(out, "rest.tar.gz")
        if os.path.exists(path):  # of a run of the other parts
            with tarfile.open(path) as t:
                for m in t.getmembers():
                    if m.isfile():
                        keep[m.name] = t.extractfile(m).read()
        for p in glob.glob(os.path.join(wd, "rest", "*.json")) + glob.glob(os.path.join(wd, "rest", "conv", "*.json")):
            keep[os.path.basename(p)] = open(p, "rb").read()
        for p in glob.glob(os.path.join(wd, "log", "*.txt")):
            b = open(p, "rb").read()[-20000:]
            if b.strip():
                keep["log/" + os.path.basename(p)] = b
        with tarfile.open(path + ".tmp", "w:gz", compresslevel=6) as t:
            for n in sorted(keep):
                m = tarfile.TarInfo(n)
                m.size = len(keep[n])
                t.addfile(m, io.BytesIO(keep[n]))
        os.replace(path + ".tmp", path)

    def errors():
        fs = sorted(glob.glob(os.path.join(wd, "errors", "*.txt")))
        with open(os.path.join(out, "errors.txt"), "a") as f:
            for p in fs:
                text = open(p, errors="replace").read().strip()
                ls = text.split("\n")
                f.write("== %s\n%s\n" % (os.path.basename(p)[:-4], "\n".join(ls[:3] + ["..."] + ls[-8:] if len(ls) > 11 else ls)[:1800]))
        print("errors.txt: %d" % len(fs), [os.path.basename(p)[:-4] for p in fs][:12], flush=True)

    for f in (many, parts, rest, errors):
        part(f)
    print("%d files, %d bytes" % (len(os.listdir(out)), sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out))), flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--minutes", type=float)
    ap.add_argument("--jobs", type=int, default=12)
    ap.add_argument("--only", default="all")
    ap.add_argument("--parts", default=",".join(EXCLUSIVE + PARALLEL))
    ap.add_argument("--limit", type=float, default=40, help="seconds of conv, sdpa; blas and ops have 30 of 40")
    ap.add_argument("-k", default="")
    ap.add_argument("--do")
    ap.add_argument("--case")
    ap.add_argument("--kind")
    ap.add_argument("--end", type=float)
    ap.add_argument("--shard", type=int, default=0)
    ap.add_argument("--start", type=int, default=0)
    a = ap.parse_args()
    START[0] = a.start
    if a.minutes is None:
        a.minutes = 0.95 if a.only == "exclusive" else 4.4
    if a.do:
        wd = a.out
        try:
            if a.do in EXCLUSIVE:
                exclusive_child(a.do, wd)
            elif a.do == "sdpa":
                part_sdpa(wd, a.limit, a.shard, 2)
            elif a.do == "blas":
                part_blas(wd, a.limit)
            elif a.do == "ops":
                part_ops(wd, a.limit)
            elif a.do == "server":
                server(a.kind, wd, a.end, a.jobs, a.k)
            elif a.do == "one":
                one(a.kind, a.case, wd)
            elif a.do == "compile_one":
                compile_one(a.case, wd)
        except Exception:
            fail(wd, "_".join(x for x in (a.kind, a.case) if x) or a.do)
            raise
        return
    t0 = time.time()
    end = t0 + 60 * a.minutes
    out = os.path.abspath(a.out)
    wd = out.rstrip("/") + ".work"
    for d in ("", "rest/conv", "log", "errors", "parts", "train", "trainer", "compile", "tmp"):
        os.makedirs(os.path.join(wd, d), exist_ok=True)
    os.makedirs(out, exist_ok=True)
    for p in glob.glob(os.path.join(wd, "errors", "*")):
        os.remove(p)
    parts = a.parts.split(",")
    stop = []
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *x: stop.append(1))
    if a.only in ("all", "exclusive"):
        exclusive(wd, [p for p in EXCLUSIVE if p in parts], end - 5, stop)
        print("exclusive parts: %.1fs" % (time.time() - t0), flush=True)
    if a.only in ("all", "parallel") and not stop:
        parallel(a, wd, [p for p in PARALLEL if p in parts], end - 8, stop)
    pack(out, wd)
    print("total %.1fs" % (time.time() - t0), flush=True)
    if not glob.glob(os.path.join(wd, "keep")):
        import shutil
        shutil.rmtree(os.path.join(wd, "tmp"), ignore_errors=True)


def parallel(a, wd, parts, end, stop):
    J = max(2, a.jobs)
    jobs = {"compile": max(1, J // 4), "trainer": max(1, J // 4)}
    jobs["train"] = max(1, J - jobs["compile"] - jobs["trainer"])
    for k in ("train", "trainer"):
        with open(os.path.join(wd, "jobs_" + k), "w") as f:
            f.write(str(jobs[k]))
    now = time.time()
    lim = max(5, min(a.limit, end - now - 20))
    short = lim * 0.75
    cmds = {}
    if "conv" in parts:
        cmds["conv"] = (PY + [os.path.join(CASES, "device.py"), os.path.join(wd, "rest", "conv"), "--part", "conv", "--minutes", str(lim / 15)], lim + 30)
    if "sdpa" in parts:
        for i in (0, 1):
            cmds["sdpa%d" % i] = (PY + [ME, wd, "--do", "sdpa", "--shard", str(i), "--limit", str(lim)], lim + 30)
    for p in ("blas", "ops"):
        if p in parts:
            cmds[p] = (PY + [ME, wd, "--do", p, "--limit", str(short)], lim + 30)
    for k in ("train", "trainer"):
        if k in parts:
            cmds[k] = (PY + [ME, wd, "--do", "server", "--kind", k, "--jobs", str(jobs[k]), "--end", str(end - 1), "-k", a.k], 1e9)
    ps = {}
    for n, (cmd, t) in cmds.items():
        try:
            log = open(os.path.join(wd, "log", n + ".txt"), "w")
            ps[n] = (subprocess.Popen(cmd, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True), time.time() + t)
        except Exception:  # noqa: BLE001
            fail(wd, n)
    comp = Compile(wd, a.k) if "compile" in parts else None
    alive, raised, restarts = dict(ps), False, {}
    try:
        smi = subprocess.Popen(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "1000"], stdout=open(os.path.join(wd, "used"), "w"), stderr=subprocess.DEVNULL, start_new_session=True)
    except OSError:
        smi = None
    while not stop and time.time() < end:
        for n, (p, t) in list(alive.items()):
            rc = p.poll()
            if rc is None and time.time() > t:
                kill(p)
                rc = "timeout"
            if rc is not None:
                del alive[n]
                tail = open(os.path.join(wd, "log", n + ".txt"), errors="replace").read().strip().split("\n")
                at = os.path.join(wd, "parts", n + ".at")
                if rc and os.path.exists(at) and restarts.get(n, 0) < 6 and time.time() - now < lim - 5:  # goes on with the next row
                    restarts[n] = restarts.get(n, 0) + 1
                    start = int(open(at).read() or 0) + 1
                    left = (short if n in ("blas", "ops") else lim) - (time.time() - now)
                    cmd = [x for x in cmds[n][0]]
                    cmd[cmd.index("--limit") + 1] = str(max(4, left))
                    with open(os.path.join(wd, "errors", "%s_crash%d.txt" % (n, start - 1)), "w") as f:
                        f.write("rc %s in row %d\n%s" % (rc, start - 1, "\n".join(tail[-15:])))
                    log = open(os.path.join(wd, "log", n + ".txt"), "w")
                    ps[n] = alive[n] = (subprocess.Popen(cmd + ["--start", str(start)], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True), time.time() + left + 30)
                    print("[%3ds] %-8s rc %s in row %d, again from the next" % (time.time() - now, n, rc, start - 1), flush=True)
                    continue
                print("[%3ds] %-8s %s | %s" % (time.time() - now, n, "ok" if rc == 0 else "FAILED rc %s" % rc, tail[-1][:200]), flush=True)
                if rc:
                    with open(os.path.join(wd, "errors", n + "_worker.txt"), "w") as f:
                        f.write("rc %s\n%s" % (rc, "\n".join(tail[-15:])))
        # what has ended leaves its share to the others
        free = sum(jobs[k] for k in ("train", "trainer") if k in ps and k not in alive)
        if free and not raised:
            raised = True
            for k in ("train", "trainer"):
                if k in alive:
                    with open(os.path.join(wd, "jobs_" + k), "w") as f:
                        f.write(str(jobs[k] + free))
        if comp:
            comp.poll(jobs["compile"] + (free if not any(k in alive for k in ("train", "trainer")) else 0), end)
        if not alive and (not comp or not comp.running and not comp.todo):
            break
        time.sleep(0.1)
    for n, (p, t) in alive.items():  # the servers end by themselves
        try:
            os.kill(p.pid, signal.SIGTERM)
        except OSError:
            pass
    t1 = time.time()
    while alive and time.time() - t1 < 1.5:
        for n in list(alive):
            if alive[n][0].poll() is not None:
                del alive[n]
        time.sleep(0.05)
    for n, (p, t) in ps.items():
        kill(p)
    if smi:
        kill(smi)
    for n in ps:
        tail = open(os.path.join(wd, "log", n + ".txt"), errors="replace").read().strip().split("\n")
        print("%-8s | %s" % (n, tail[-1][:200]), flush=True)
    if comp:
        comp.stop()


if __name__ == "__main__":
    main()
