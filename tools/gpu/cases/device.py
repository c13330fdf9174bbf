"""What a real GPU does below and inside of the operators; record.py runs its parts env, driver and conv.

usage: python3 device.py OUT [--oracle DIR] [--minutes M] [--parts env,driver,conv,cases] [-k SUBSTR]
OUT gets env.json, driver.json, conv.json, cases.jsonl (one line a case, written as it goes). Needs torch with CUDA and,
for --oracle (default: ../oracle beside this file), models.py and train_cases.py of that folder. Each case runs in a
process of its own. Weights and inputs are really initialised (GradScaler must not see NaNs).

env     versions, device, memory before and after the CUDA context, after the first GEMM and convolution (nvidia-smi and mem_get_info)
driver  cudaMalloc: granularity, the order of addresses, what a free and a new allocation get
conv    what convolutions allocate beyond their outputs (cuDNN workspaces): forward and backward, dtypes, layouts, benchmark on and off
cases   the training cases: peaks per step and phase, final stats, and the event list of step 2 (requested bytes, order)
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def smi():
    try:
        q = subprocess.run(["nvidia-smi", "--query-gpu=memory.used,memory.total,driver_version,name", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20)
        u, t, d, n = [x.strip() for x in q.stdout.strip().split("\n")[0].split(",")]
        return {"used_mib": int(u), "total_mib": int(t), "driver": d, "name": n}
    except Exception as e:  # noqa: BLE001
        return {"error": str(e)}


def part_env():
    r = {"before": smi()}
    import torch
    torch.cuda.init()
    x = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()

    def now():
        f, t = torch.cuda.mem_get_info()
        return {"smi": smi(), "free": f, "total": t, "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    p = torch.cuda.get_device_properties(0)
    r.update(torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), python=sys.version.split()[0], name=p.name,
             sm="%d%d" % (p.major, p.minor), sms=p.multi_processor_count, total_memory=p.total_memory)
    r["context_one_tensor"] = now()
    a = torch.randn(256, 256, device="cuda", requires_grad=True)
    (a @ a).sum().backward()
    torch.cuda.synchronize()
    r["after_gemm_fwd_bwd"] = now()
    c = torch.nn.Conv2d(8, 8, 3, device="cuda")
    c(torch.randn(4, 8, 32, 32, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    r["after_conv_fwd_bwd"] = now()
    b = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    (b @ b).sum().backward()
    torch.optim.AdamW([a, b]).step()
    q = torch.randn(1, 4, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    torch.cuda.synchronize()
    r["after_bf16_optimizer_sdpa"] = now()
    del x
    return r


def part_driver():
    import torch
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    rt = None
    for n in ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"):
        try:
            rt = ctypes.CDLL(n)
            break
        except OSError:
            pass
    if rt is None:
        for root, _, fs in os.walk(os.path.dirname(os.path.dirname(torch.__file__))):
            for f in fs:
                if f.startswith("libcudart.so"):
                    rt = ctypes.CDLL(os.path.join(root, f))
            if rt:
                break
    if rt is None:
        return {"error": "no libcudart found"}

    def malloc(n):
        p = ctypes.c_void_p()
        e = rt.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n))
        return p.value if e == 0 else None

    def free(p):
        rt.cudaFree(ctypes.c_void_p(p))

    def info():
        return torch.cuda.mem_get_info()[0]
    r = {"granularity": [], "sequences": []}
    for n in (1, 512, 4096, 65536, 1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 1, 20 << 20, (20 << 20) + 1, 22 << 20, 100 << 20):
        f0 = info()
        ps = [malloc(n) for _ in range(8)]
        r["granularity"].append({"bytes": n, "taken_by_8": f0 - info(), "address_deltas": [b - a for a, b in zip(ps, ps[1:])]})
        for p in ps:
            free(p)
    for sizes, drop, again in (((20, 20, 20, 20, 20, 20), (1, 3), (20, 20)), ((2, 20, 64, 128, 20, 64, 256), (2, 3, 5), (64, 20, 100, 2)),
                               ((256, 128, 64, 32, 20, 2, 2, 20), (0, 2, 5), (2, 20, 200)), ((20, 2, 20, 2, 20, 2), (0, 2, 4), (2, 2, 20, 60))):
        ps = [malloc(m << 20) for m in sizes]
        base = min(ps)
        for i in drop:
            free(ps[i])
        qs = [malloc(m << 20) for m in again]
        r["sequences"].append({"mib": sizes, "addr_mib": [(p - base) / 2**20 for p in ps], "freed": drop, "then_mib": again, "addr2_mib": [(q - base) / 2**20 for q in qs]})
        for i, p in enumerate(ps):
            if i not in drop:
                free(p)
        for q in qs:
            free(q)
    return r


def alloc_events(torch, a, b=None):
    """Allocations and frees (requested bytes) between two positions of the memory history."""
    tr = torch.cuda.memory._snapshot()["device_traces"][0][a:b]
    return [("+%d" if e["action"] == "alloc" else "-%d") % e["size"] for e in tr if e["action"] in ("alloc", "free_requested")]


def part_conv(limit):
    import torch
    import torch.nn as nn
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1000000)

    def n():
        return len(torch.cuda.memory._snapshot()["device_traces"][0])
    t0, rows = time.time(), []
    grid = []
    for dt in ("float32", "bfloat16", "float16"):
        for cl in (False, True):
            for bench in (False, True):
                for (cin, cout, k, s, p, g, hw) in ((3, 64, 7, 2, 3, 1, 224), (64, 64, 1, 1, 0, 1, 56), (64, 64, 3, 1, 1, 1, 56), (128, 128, 3, 2, 1, 1, 56), (256, 256, 3, 1, 1, 1, 14),
                                                    (512, 512, 3, 1, 1, 1, 7), (512, 2048, 1, 1, 0, 1, 7), (64, 64, 3, 1, 1, 64, 112), (240, 240, 5, 2, 2, 240, 28), (96, 96, 7, 1, 3, 96, 56),
                                                    (3, 96, 4, 4, 0, 1, 224), (128, 128, 3, 1, 1, 32, 28), (3, 64, 3, 1, 1, 1, 224), (64, 128, 3, 1, 1, 1, 112)):
                    for b in (1, 8, 32, 128):
                        grid.append((dt, cl, bench, cin, cout, k, s, p, g, hw, b))
    grid.sort(key=lambda q: (q[2], q[0] != "float32", q[-1]))
    for dt, cl, bench, cin, cout, k, s, p, g, hw, b in grid:
        if time.time() - t0 > limit:
            break
        torch.backends.cudnn.benchmark = bench
        dtype = getattr(torch, dt)
        row = dict(dtype=dt, channels_last=cl, benchmark=bench, cin=cin, cout=cout, k=k, stride=s, pad=p, groups=g, hw=hw, batch=b)
        try:
            m = nn.Conv2d(cin, cout, k, s, p, groups=g, bias=False, device="cuda", dtype=dtype)
            x = torch.randn(b, cin, hw, hw, device="cuda", dtype=dtype)
            if cl:
                m, x = m.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
            x.requires_grad_()
            for warm in (0, 1):
                i0 = n()
                y = m(x)
                i1 = n()
                gy = torch.empty_like(y).normal_()
                i2 = n()
                y.backward(gy)
                torch.cuda.synchronize()
                row["forward%d" % warm], row["backward%d" % warm] = alloc_events(torch, i0, i1), alloc_events(torch, i2)
                x.grad = m.weight.grad = None
                del y, gy
        except Exception as e:  # noqa: BLE001
            row["error"] = str(e)[:200]
        rows.append(row)
        m = x = None
        if len(rows) % 50 == 0:
            torch.cuda.empty_cache()
            torch.cuda.memory._record_memory_history(enabled=None)
            torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1000000)
    return rows


def one_case(name, oracle, out):
    sys.path.insert(0, oracle)
    import torch
    import models
    import train_cases as tc
    cfg = tc.matrix()[name]
    tc.no_init = lambda: None
    fac, mkx, mky, loss = models.KINDS[cfg["model"]]

    def real(f):
        def g(*a):
            t = f(*a)
            return t.normal_() if t.is_floating_point() else t.random_(0, 2)
        return g
    models.KINDS[cfg["model"]] = (fac, real(mkx), real(mky), loss)
    if cfg.get("alloc_conf"):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = cfg["alloc_conf"]
    r = tc.run_case(cfg)
    r["events"] = {k: v for k, v in r["events"].items() if k in ("setup", "step2")}
    r["smi"], r["mem_get_info"] = smi(), torch.cuda.mem_get_info()
    with open(out, "a") as f:
        f.write(json.dumps(r, separators=(",", ":")) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--oracle", default=os.path.join(HERE, "..", "oracle"))
    ap.add_argument("--minutes", type=float, default=8)
    ap.add_argument("--parts", default="env,driver,conv,cases")
    ap.add_argument("-k", default="")
    ap.add_argument("--case")
    ap.add_argument("--part")
    a = ap.parse_args()
    if a.case:
        return one_case(a.case, a.oracle, os.path.join(a.out, "cases.jsonl"))
    os.makedirs(a.out, exist_ok=True)
    if a.part:
        r = {"env": part_env, "driver": part_driver, "conv": lambda: part_conv(60 * a.minutes * 0.25)}[a.part]()
        with open(os.path.join(a.out, a.part + ".json"), "w") as f:
            json.dump(r, f, separators=(",", ":"))
        return
    end = time.time() + 60 * a.minutes
    me = [sys.executable, os.path.abspath(__file__), a.out, "--oracle", a.oracle, "--minutes", str(a.minutes)]
    for p in ("env", "driver", "conv"):
        if p in a.parts.split(","):
            rc = subprocess.run(me + ["--part", p]).returncode
            print(p, "ok" if rc == 0 else "FAILED rc %d" % rc, flush=True)
    if "cases" in a.parts.split(","):
        sys.path.insert(0, a.oracle)
        import train_cases as tc
        # spread the time over families: one of each family, then the next of each
        fam = {}
        for name in tc.matrix():
            if a.k in name:
                fam.setdefault(name.split("_")[0], []).append(name)
        order = [n for i in range(400) for l in fam.values() for n in l[i:i + 1]]
        done = failed = 0
        for name in order:
            if time.time() > end - 10:
                break
            rc = subprocess.run(me + ["--case", name], stderr=subprocess.PIPE, text=True)
            done += 1
            if rc.returncode:
                failed += 1
                print(name, "FAILED", rc.stderr.strip().split("\n")[-1][:160], flush=True)
        print("%d of %d cases, %d failed" % (done, len(order), failed), flush=True)


main()
