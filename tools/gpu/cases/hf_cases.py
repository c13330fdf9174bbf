"""Training steps of Hugging Face models, one JSON per case.

usage:
  python3 hf_cases.py OUTDIR [-j N] [-k SUBSTRING] [-s SET] [-l] [--no-events]
JSON as train_cases.py writes it; step phases here: zero_grad, forward, backward, [clip], optimizer.
"""
import argparse
import contextlib
import gc
import json
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch  # noqa: E402

import train_cases as tc  # noqa: E402

ANSWER = {"bool": True}
_bool = torch.Tensor.__bool__


def _host_bool(t):
    """Device memory reads back as zeros here; the two tests transformers makes on device values
    (mask.all(), packed_ids.all()) are answered as real data would: True, or False with padding."""
    r = _bool(t)
    return ANSWER["bool"] if t.is_cuda else r


def setup_hf():
    tc.no_init()
    torch.Tensor.__bool__ = _host_bool
    import transformers
    import transformers.initialization as ti
    transformers.logging.set_verbosity_error()
    for k in dir(ti):
        if k.endswith("_") and not k.startswith("_"):
            setattr(ti, k, lambda t, *a, **kw: t)
    transformers.PreTrainedModel.initialize_weights = lambda self, *a, **k: None
    return transformers


def compat_451():
    """Memory behaviour of transformers 4.48-4.51 on top of 5.12: the cache keeps the projections themselves
    (no cat on the first update), sdpa makes q, k, v contiguous and repeats k, v, one float mask per forward."""
    import transformers.cache_utils as cu
    import transformers.integrations.sdpa_attention as sa
    upd, fwd = cu.DynamicLayer.update, sa.sdpa_attention_forward

    def update(self, k, v, *a, **kw):
        if not self.is_initialized:
            self.lazy_initialization(k, v)
        if self.keys.numel() == 0:
            self.keys, self.values = k, v
            return k, v
        return upd(self, k, v, *a, **kw)

    def forward(module, q, k, v, mask, *a, **kw):
        if mask is not None and mask.dtype == torch.bool:
            f = getattr(mask, "_as_float", None)
            if f is None:
                f = mask._as_float = torch.zeros(mask.shape, dtype=q.dtype, device=mask.device).masked_fill_(~mask, torch.finfo(q.dtype).min)
            mask = f
        n = getattr(module, "num_key_value_groups", 1)
        k, v = sa.repeat_kv(k, n), sa.repeat_kv(v, n)
        g = module.__dict__.pop("num_key_value_groups", None)
        try:
            return fwd(module, q.contiguous(), k.contiguous(), v.contiguous(), mask, *a, **kw)
        finally:
            if g is not None:
                module.num_key_value_groups = g

    cu.DynamicLayer.update = update
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    ALL_ATTENTION_FUNCTIONS["sdpa"] = forward


OPT = dict(tc.OPT)


def _hf_adafactor(p):
    from transformers.optimization import Adafactor
    return Adafactor(p, lr=1e-3, relative_step=False, scale_parameter=False)


OPT["hf_adafactor"] = _hf_adafactor

DROP = ("id2label", "label2id", "transformers_version", "architectures", "task_specific_params", "_name_or_path")


def make_config(cfg):
    import transformers
    c = getattr(transformers, cfg["config_cls"])(**cfg["hf"])
    c._attn_implementation = cfg["attn"]
    if cfg["use_cache"] is not None:
        c.use_cache = cfg["use_cache"]
    if cfg["config_cls"] == "T5Config":
        c.decoder_start_token_id = 0
    return c


def host_batch(cfg, c):
    b, t, task = cfg["batch"], cfg.get("seq"), cfg["task"]
    z = lambda *s: torch.zeros(*s, dtype=torch.int64)  # noqa: E731
    m = {"attention_mask": z(b, t)} if cfg.get("mask", "none") != "none" else {}
    if task in ("causal_lm", "mlm"):
        d = {"input_ids": z(b, t), "labels": "input_ids" if cfg.get("labels", "same") == "same" else z(b, t), **m}
    elif task == "seqcls":
        d = {"input_ids": z(b, t), "labels": z(b), **m}
    elif task == "seq2seq":
        d = {"input_ids": z(b, t), "labels": z(b, cfg["tgt_seq"]), **m}
    elif task == "image":
        f = torch.bfloat16 if cfg["precision"] == "pure_bf16" else torch.float32
        d = {"pixel_values": torch.empty(b, 3, c.image_size, c.image_size, dtype=f), "labels": z(b)}
    return d


def to_cuda(d):
    r = {k: v.cuda() for k, v in d.items() if torch.is_tensor(v)}
    return {k: r[k] if torch.is_tensor(v) else r[v] for k, v in d.items()}


def step_once(cfg, model, opt, scaler, data, meter, ph, h):
    amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(cfg["precision"])
    ctx = (lambda: torch.autocast("cuda", dtype=amp)) if amp else contextlib.nullcontext
    feats, pos, micro = cfg["features"], cfg.get("zero_grad", "start"), cfg.get("accumulate", 1)
    if pos == "start":
        opt.zero_grad()
    ph["zero_grad"] = meter.mark()
    for k in range(micro):
        sfx = "" if micro == 1 else str(k)
        h.batch = data()
        with ctx():
            h.out = model(**h.batch)
            h.loss = h.out.loss
        if micro > 1:
            h.loss = h.loss / micro
        ph["forward" + sfx] = meter.mark()
        if pos == "before_backward" and k == 0:
            opt.zero_grad()
        (scaler.scale(h.loss) if scaler else h.loss).backward()
        ph["backward" + sfx] = meter.mark()
    if "clip" in feats:
        if scaler:
            scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        ph["clip"] = meter.mark()
    if scaler:
        scaler.step(opt)
        scaler.update()
    else:
        opt.step()
    if pos == "end":
        opt.zero_grad()
    if "item" in feats:
        h.loss.item()
    ph["optimizer"] = meter.mark()


def run_case(cfg, keep_events=True):
    t0 = time.time()
    import transformers
    torch.cuda.init()
    if keep_events:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=4000000)
    gc.collect()
    gc.disable()
    meter = tc.Meter()
    torch.cuda.reset_peak_memory_stats()
    ANSWER["bool"] = cfg.get("mask", "none") != "padded"
    c = make_config(cfg)
    model = getattr(transformers, cfg["model"])(c)
    if "checkpoint" in cfg["features"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": "reentrant" in cfg["features"]})
    model = model.to(device="cuda", dtype=torch.bfloat16) if cfg["precision"] == "pure_bf16" else model.to("cuda")
    model.train()
    setup = {"model": meter.mark()}
    opt = OPT[cfg["optimizer"]](model.parameters())
    scaler = torch.amp.GradScaler("cuda") if cfg["precision"] == "amp_fp16" else None
    hb = host_batch(cfg, c)
    if cfg.get("input", "per_step") == "static":
        fixed = to_cuda(hb)
        data = lambda: fixed  # noqa: E731
    else:
        data = lambda: to_cuda(hb)  # noqa: E731
    setup["data_optimizer"] = meter.mark()
    steps, h = [], tc.Holder()
    for _ in range(cfg.get("steps", 3)):
        ph = {}
        step_once(cfg, model, opt, scaler, data, meter, ph, h)
        if cfg["loop"] == "function":
            h.__dict__.clear()
        end = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
        meter.mark()
        steps.append({"peak_allocated": max(p["peak_allocated"] for p in ph.values()), "peak_reserved": max(p["peak_reserved"] for p in ph.values()),
                      "peak_requested": max(p["peak_requested"] for p in ph.values()),
                      "end_allocated": end["allocated"], "end_reserved": end["reserved"], "phases": ph})
    st = torch.cuda.memory_stats()
    events, segs = {}, []
    if keep_events:
        tr = torch.cuda.memory._snapshot()["device_traces"][0]
        bounds = [0, setup["data_optimizer"]["event"]] + [list(s["phases"].values())[-1]["event"] for s in steps]
        ids, n, k, out = {}, 0, 0, [[] for _ in bounds]
        for j, e in enumerate(tr):
            while k + 1 < len(bounds) and j >= bounds[k + 1]:
                k += 1
            if e["action"] == "alloc":
                n += 1
                ids[e["addr"]] = n
                out[k].append([n, e["size"]] + ([e["stream"]] if e["stream"] else []))
            elif e["action"] == "free_requested":
                out[k].append(-ids.pop(e["addr"], 0))
            elif e["action"].startswith("segment_"):
                segs.append([e["action"], e["size"], len(out[k]), k])
        names = ["setup"] + ["step%d" % (i + 1) for i in range(len(bounds) - 1)]
        events = {nm: out[i] for i, nm in enumerate(names[: len(bounds) - 1])}
    cc = dict(cfg)
    cc["hf"] = {k: v for k, v in c.to_dict().items() if k not in DROP}
    cc["hf"]["num_labels"] = c.num_labels
    cc["attn_used"] = c._attn_implementation
    return {
        "name": cfg["name"], "torch": torch.__version__, "transformers": transformers.__version__, "config": cc, "device": torch.cuda.get_device_name(0),
        "param_count": sum(p.numel() for p in model.parameters()), "param_tensors": len(list(model.parameters())),
        "param_bytes": tc.nbytes(model.parameters()), "buffer_bytes": tc.nbytes(model.buffers()),
        "optimizer_state_bytes": tc.nbytes(t for s in opt.state.values() for t in s.values() if torch.is_tensor(t)),
        "setup": setup, "steps": steps, "segments": segs,
        "peak_allocated": max([s["peak_allocated"] for s in steps] + [p["peak_allocated"] for p in setup.values()]),
        "peak_reserved": max([s["peak_reserved"] for s in steps] + [p["peak_reserved"] for p in setup.values()]),
        "final": {k: st[k] for k in ("allocated_bytes.all.current", "reserved_bytes.all.current", "active_bytes.all.current",
                                     "inactive_split_bytes.all.current", "requested_bytes.all.current", "segment.all.current",
                                     "allocation.all.current", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")},
        "events": events, "wall_s": round(time.time() - t0, 3)}


# ---- what is run
def M(model, config_cls, task, attn="sdpa", use_cache=False, **hf):
    return dict(model=model, config_cls=config_cls, task=task, attn=attn, use_cache=use_cache, hf=hf)


def gpt2(**k):
    return M("GPT2LMHeadModel", "GPT2Config", "causal_lm", **k)


def bert_mlm(**k):
    return M("BertForMaskedLM", "BertConfig", "mlm", use_cache=None, **k)


def bert_cls(**k):
    return M("BertForSequenceClassification", "BertConfig", "seqcls", use_cache=None, **k)


def llama(**k):
    return M("LlamaForCausalLM", "LlamaConfig", "causal_lm", **k)


def opt_(**k):
    return M("OPTForCausalLM", "OPTConfig", "causal_lm", **k)


def t5(**k):
    return M("T5ForConditionalGeneration", "T5Config", "seq2seq", **dict({"attn": "eager"}, **k))


L1B = dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192,
           vocab_size=128256, max_position_embeddings=8192, tie_word_embeddings=True)
LT = dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1376, vocab_size=32000,
          max_position_embeddings=2048)
O350 = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False)


def matrix():
    cases = {}

    def add(set_, family, net, m, batch, seq, precision="fp32", optimizer="adamw", features=(), arch="sm80", tag="", **kw):
        n = "%s_b%dx%s_%s_%s%s" % (net, batch, seq if seq else "img", precision, optimizer, ("_" + tag) if tag else "")
        assert n not in cases, n
        m = dict(m)
        for k in ("attn", "use_cache"):
            if k in kw:
                m[k] = kw.pop(k)
        cases[n] = dict(name=n, set=set_, family=family, **m, batch=batch, seq=seq, precision=precision, optimizer=optimizer,
                        features=list(features), arch=arch, **dict({"loop": "flat", "input": "per_step", "zero_grad": "start"}, **kw))

    def sweep(set_, fam, net, m, shapes, precs=("amp_bf16", "amp_fp16", "pure_bf16"), opts=(), **kw):
        for b, t in shapes:
            add(set_, fam, net, m, b, t, **kw)
        b, t = shapes[0]
        for p in precs:
            add(set_, fam, net, m, b, t, p, **kw)
        for o in opts:
            add(set_, fam, net, m, b, t, "fp32", o, **kw)

    v = "base"
    # gpt2
    sweep(v, "gpt2", "gpt2", gpt2(), ((8, 128), (4, 512), (2, 1024)), opts=("adamw_fused", "sgd", "adafactor", "sgd_momentum", "adamw_foreach_off", "hf_adafactor"))
    for p in ("amp_bf16", "pure_bf16"):
        add(v, "gpt2", "gpt2", gpt2(), 8, 1024, p, "adamw_fused")
        add(v, "gpt2", "gpt2", gpt2(), 8, 1024, p, features=["checkpoint"], tag="ckpt")
    g = ("gpt2", "gpt2", gpt2(), 4, 512)
    add(v, *g, attn="eager", tag="eager")
    add(v, *g, "amp_bf16", attn="eager", tag="eager")
    add(v, *g, features=["checkpoint"], tag="ckpt")
    add(v, *g, features=["checkpoint", "reentrant"], tag="ckptre")
    add(v, *g, use_cache=True, tag="cache")
    add(v, *g, "amp_bf16", use_cache=True, tag="cache")
    add(v, *g, loop="function", tag="function")
    add(v, *g, "amp_bf16", loop="function", tag="function")
    add(v, *g, mask="ones", tag="maskones")
    add(v, *g, mask="padded", tag="maskpad")
    add(v, *g, "amp_bf16", mask="padded", tag="maskpad")
    add(v, *g, "amp_fp16", features=["clip"], tag="clip")
    add(v, *g, accumulate=4, tag="accum4")
    add(v, *g, zero_grad="end", tag="zeroend")
    add(v, *g, zero_grad="before_backward", tag="zeromid")
    add(v, *g, arch="sm90", tag="sm90")
    add(v, *g, "amp_bf16", arch="sm90", tag="sm90")
    add(v, "gpt2", "distilgpt2", gpt2(n_layer=6), 8, 128)
    add(v, "gpt2", "distilgpt2", gpt2(n_layer=6), 16, 256, "amp_bf16")
    add(v, "gpt2", "distilgpt2", gpt2(n_layer=6), 30, 128, optimizer="adam", use_cache=True, mask="padded", zero_grad="before_backward", arch="sm86", tag="xmemlike")
    # bert
    sweep(v, "bert", "bertmlm", bert_mlm(), ((8, 128), (4, 512)), opts=("adamw_fused", "sgd"))
    sweep(v, "bert", "bertcls", bert_cls(), ((8, 128), (32, 128)), precs=("amp_bf16", "amp_fp16"))
    add(v, "bert", "bertcls", bert_cls(), 16, 384, attn="eager", tag="eager")
    add(v, "bert", "bertcls", bert_cls(), 32, 128, "amp_fp16", features=["clip"], mask="padded", tag="clip_maskpad")
    add(v, "bert", "bertcls", bert_cls(), 32, 128, loop="function", mask="ones", tag="function_maskones")
    add(v, "bert", "bertmlm", bert_mlm(), 16, 512, "amp_bf16", features=["checkpoint"], tag="ckpt")
    add(v, "bert", "bertmlm", bert_mlm(), 16, 512, "amp_bf16", arch="sm90", tag="sm90")
    # llama
    sweep(v, "llama", "llamatiny", llama(**LT), ((8, 128), (4, 512)), opts=("adamw_fused", "adafactor", "sgd"))
    add(v, "llama", "llamatiny", llama(**LT), 4, 512, attn="eager", tag="eager")
    add(v, "llama", "llamatiny", llama(**LT), 4, 512, use_cache=True, tag="cache")
    add(v, "llama", "llamatiny", llama(**LT), 4, 512, mask="padded", tag="maskpad")
    l1 = llama(**L1B)
    add(v, "llama", "llama1b", l1, 1, 512)
    add(v, "llama", "llama1b", l1, 2, 1024, "pure_bf16")
    add(v, "llama", "llama1b", l1, 2, 1024, "pure_bf16", "adamw_fused", tag="function", loop="function")
    add(v, "llama", "llama1b", l1, 2, 1024, "amp_bf16")
    add(v, "llama", "llama1b", l1, 4, 2048, "pure_bf16", features=["checkpoint"], tag="ckpt")
    add(v, "llama", "llama1b", l1, 4, 2048, "pure_bf16", "adafactor", features=["checkpoint", "clip"], tag="ckpt_clip", arch="sm90")
    # opt
    sweep(v, "opt", "opt125m", opt_(), ((8, 128), (4, 512), (2, 1024)), precs=("amp_bf16", "pure_bf16"), opts=("sgd",))
    add(v, "opt", "opt125m", opt_(), 4, 512, attn="eager", tag="eager")
    add(v, "opt", "opt125m", opt_(), 4, 512, "amp_bf16", features=["checkpoint"], tag="ckpt")
    add(v, "opt", "opt350m", opt_(**O350), 8, 128)
    add(v, "opt", "opt350m", opt_(**O350), 4, 512, "amp_bf16", "adamw_fused")
    # t5 small
    sweep(v, "t5", "t5small", t5(), ((8, 128), (4, 512)), opts=("adafactor", "sgd"), tgt_seq=128)
    add(v, "t5", "t5small", t5(), 16, 256, "amp_bf16", tgt_seq=64, loop="function", tag="function")
    add(v, "t5", "t5small", t5(), 16, 256, features=["checkpoint"], tgt_seq=64, tag="ckpt")
    return cases


def child(cfg, out, keep):
    try:
        os.environ["FAKE_GPU_ARCH"] = cfg["arch"]
        if cfg.get("compat") == "4.51":
            compat_451()
        r = run_case(cfg, keep)
        d = os.path.join(out, cfg["set"])
        os.makedirs(d, exist_ok=True)
        with open(os.path.join(d, cfg["name"] + ".json"), "w") as f:
            json.dump(r, f, separators=(",", ":"))
        ends = [s["end_allocated"] for s in r["steps"]]
        print("%-46s params %7.1fM alloc %9.2f rsv %7d MiB  ev %6d  %5.1fs%s" % (cfg["name"], r["param_count"] / 1e6, r["peak_allocated"] / 2**20, r["peak_reserved"] >> 20,
              sum(len(v) for v in r["events"].values()), r["wall_s"], "  GROWS" if len(ends) > 2 and ends[2] > ends[1] + (16 << 20) else ""), flush=True)
        return 0
    except BaseException:
        with open(os.path.join(out, cfg["name"] + ".error"), "w") as f:
            traceback.print_exc(file=f)
        print("%-46s FAILED %s" % (cfg["name"], traceback.format_exc().strip().splitlines()[-1][:160]), flush=True)
        return 1


def fork_all(cases, jobs, fn):
    running, bad = set(), 0
    for c in cases:
        while len(running) >= jobs:
            pid, st = os.wait()
            running.discard(pid)
            bad += st != 0
        pid = os.fork()
        if pid == 0:
            os._exit(fn(c))
        running.add(pid)
    while running:
        pid, st = os.wait()
        running.discard(pid)
        bad += st != 0
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("-j", type=int, default=1)
    ap.add_argument("-k", default="")
    ap.add_argument("-s", default="")
    ap.add_argument("-l", action="store_true")
    ap.add_argument("--no-events", action="store_true")
    a = ap.parse_args()
    cases = [c for n, c in matrix().items() if a.k in n and a.s in c["set"]]
    if a.l:
        print("\n".join(c["set"] + " " + c["name"] for c in cases))
        print(len(cases))
        return
    t0 = time.time()
    os.makedirs(a.out, exist_ok=True)
    torch.set_num_threads(1)
    tf = setup_hf()
    for c in {(c["model"], c["config_cls"]) for c in cases}:
        getattr(tf, c[0]), getattr(tf, c[1])
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    bad = fork_all(cases, a.j, lambda c: child(c, a.out, not a.no_events))
    print("%d cases, %d failed, %.0fs" % (len(cases), bad, time.time() - t0))


if __name__ == "__main__":
    main()
