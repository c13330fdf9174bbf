"""Trains models of transformers on a pretended GPU, as recordings of testdata/truth-hf and testdata/truth-trainer say, and writes what pretend.py writes.

usage: library.py LIST      lines "ARCH NAME": reads NAME.config.json, the config of a recording, writes NAME.json

Runs with the transformers, accelerate and PEFT that Python finds. Where a program reads a tensor on the GPU as true or false, the answer is that
of the recordings: true, but with a mask that has padding.
"""
import contextlib
import gc
import importlib
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch

import pretend
import record
import recorder

Z = lambda *s: torch.zeros(s, dtype=torch.int64)
HALVES = {"pure_bf16": torch.bfloat16, "pure_fp16": torch.float16}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "sgd_foreach_off": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw_foreach_off": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "adadelta": torch.optim.Adadelta,
    "nadam": torch.optim.NAdam,
    "adamax": torch.optim.Adamax,
}


def prepare(cfg):
    """Weights need no values; what is read is answered."""
    record.without_values()
    import transformers.initialization as ti

    for k in dir(ti):
        if k.endswith("_") and not k.startswith("_"):
            setattr(ti, k, lambda t, *a, **kw: t)
    transformers.PreTrainedModel.initialize_weights = lambda self, *a, **k: None
    real, answer = torch.Tensor.__bool__, cfg.get("mask") != "padded"

    def truth(t):
        value = real(t)
        return answer if t.is_cuda else value

    torch.Tensor.__bool__ = truth


def config(cfg):
    cls = getattr(transformers, cfg["model"])
    kind = getattr(transformers, cfg["config_cls"]) if cfg.get("config_cls") else cls.config_class
    hf = {k: v for k, v in cfg["hf"].items() if k not in ("model_type", "num_labels")}
    c = kind(**hf, num_labels=cfg["hf"].get("num_labels", 2))
    sys.modules[cls.__module__].set = lambda items=(): dict.fromkeys(items)  # types of layers come in the order of the layers, not as text is hashed
    c._attn_implementation = cfg["attn"]
    if cfg.get("use_cache") is not None:
        c.use_cache = cfg["use_cache"]
    return cls, c


def batch(cfg, c, b):
    """A batch of b samples; none: one sample, as a data set gives it."""
    t, task = cfg.get("seq"), cfg["task"]
    n = (b,) if b else ()
    mask = {"attention_mask": torch.ones(*n, t, dtype=torch.int64)} if t and cfg.get("mask") in ("ones", "padded") else {}
    if task in ("causal_lm", "mlm"):
        same = b and cfg.get("labels", "same") == "same"
        return {"input_ids": Z(*n, t), "labels": "input_ids" if same else Z(*n, t), **mask}
    if task in ("tokencls", "token_cls"):
        return {"input_ids": Z(*n, t), "labels": Z(*n, t), **mask}
    if task == "seqcls":
        wide = (c.num_labels,) if c.problem_type == "multi_label_classification" else ()
        kind = torch.int64 if c.num_labels > 1 and not wide else torch.float32
        return {"input_ids": Z(*n, t), "labels": torch.zeros((*n, *wide), dtype=kind), **mask}
    if task == "qa":
        return {"input_ids": Z(*n, t), "start_positions": Z(*n), "end_positions": Z(*n), **mask}
    if task == "seq2seq":
        return {"input_ids": Z(*n, t), "labels": Z(*n, cfg["tgt_seq"]), **mask}
    if task == "image":
        side = cfg.get("image") or c.image_size
        sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
        kind = HALVES.get(cfg.get("precision"), torch.float32)
        return {"pixel_values": torch.zeros(*n, getattr(c, "num_channels", 3), *sides, dtype=kind), "labels": Z(*n)}
    raise NotImplementedError(f"a batch for {task}")


class Holder:
    pass


class Parts:
    """Where the set-up and the steps end, in the list of events, and their peaks."""

    def __init__(self):
        self.events, self.ends, self.steps = pretend.events, [], []

    def end(self):
        self.ends.append(len(self.events.list))
        self.steps.append({"peak_allocated": self.events.peak})
        self.events.peak = self.events.used

    def result(self):
        bounds = [0, *self.ends]
        names = ["setup"] + ["step%d" % i for i in range(1, len(self.ends))]
        events = {n: self.events.list[a:b] for n, a, b in zip(names, bounds, bounds[1:])}
        return {"torch": torch.__version__, "events": events, "steps": self.steps[1:], "setup": self.steps[0]}


def loop(cfg):
    """A loop written by hand around a model."""
    parts = Parts()
    cls, c = config(cfg)
    model = cls(c)
    features = cfg.get("features") or []
    if "checkpoint" in features:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": "reentrant" in features})
    model = model.to(device="cuda", dtype=HALVES.get(cfg["precision"]))
    model.train()
    for n, p in model.named_parameters():
        if n in (cfg.get("frozen") or []):
            p.requires_grad_(False)
    opt = OPTIMIZERS[cfg["optimizer"]](model.parameters())
    scaler = torch.amp.GradScaler("cuda") if cfg["precision"] == "amp_fp16" else None
    amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(cfg["precision"])
    host = batch(cfg, c, cfg["batch"])

    def to_cuda():
        on = {k: v.cuda() for k, v in host.items() if torch.is_tensor(v)}
        return {k: on[k] if torch.is_tensor(v) else on[v] for k, v in host.items()}

    fixed = to_cuda() if cfg.get("input") == "static" else None
    h, zero, micro = Holder(), cfg.get("zero_grad", "start"), cfg.get("accumulate") or 1
    parts.end()
    for _ in range(3):
        if zero == "start":
            opt.zero_grad()
        for k in range(micro):
            h.batch = fixed or to_cuda()
            with torch.autocast("cuda", dtype=amp) if amp else contextlib.nullcontext():
                h.out = model(**h.batch)
                h.loss = h.out.loss
            if micro > 1:
                h.loss = h.loss / micro
            if zero == "before_backward" and k == 0:
                opt.zero_grad()
            (scaler.scale(h.loss) if scaler else h.loss).backward()
        if "clip" in features:
            if scaler:
                scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler:
            scaler.step(opt)
            scaler.update()
        else:
            opt.step()
        if zero == "end":
            opt.zero_grad()
        if cfg.get("loop") == "function":
            h.__dict__.clear()
        parts.end()
    return parts.result()


class Rows(torch.utils.data.Dataset):
    """Samples that are all alike."""

    def __init__(self, sample, n=4096):
        self.sample, self.n = sample, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.sample


def trainer(cfg):
    """transformers' Trainer. A step ends where on_step_end is called."""
    import tempfile

    parts = Parts()
    cls, c = config(cfg)
    model = cls(c)
    if cfg.get("dtype"):
        model = model.to(getattr(torch, cfg["dtype"]))
    for name, kind in {"lora": "LoraConfig", "oft": "OFTConfig", "boft": "BOFTConfig", "adalora": "AdaLoraConfig", "prompt_tuning": "PromptTuningConfig",
                       "p_tuning": "PromptEncoderConfig", "prefix_tuning": "PrefixTuningConfig"}.items():
        if cfg.get(name):
            import peft

            model = peft.get_peft_model(model, getattr(peft, kind)(**cfg[name]))

    class Marks(transformers.TrainerCallback):
        def on_step_begin(self, *a, **k):
            if not parts.ends:
                parts.end()

        def on_step_end(self, *a, **k):
            parts.end()

    with tempfile.TemporaryDirectory() as out:
        args = dict(output_dir=out, max_steps=3, per_device_train_batch_size=cfg["batch"], report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
        rows = Rows(batch(dict(cfg, mask=cfg.get("mask") or "ones"), c, 0))
        tested = {"eval_dataset": Rows(rows.sample, cfg["eval_rows"])} if cfg.get("eval_rows") else {}
        t = transformers.Trainer(model=model, args=transformers.TrainingArguments(**dict(args, **cfg["args"])), train_dataset=rows, callbacks=[Marks()], **tested)
        if "model_accepts_loss_kwargs" in cfg:
            t.model_accepts_loss_kwargs = cfg["model_accepts_loss_kwargs"]
        t.train()
    return parts.result()


def run(name):
    with open(name + ".config.json") as f:
        cfg = json.load(f)
    prepare(cfg)
    gc.collect()
    gc.disable()
    return trainer(cfg) if "args" in cfg else loop(cfg)


def ready():
    global transformers
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()


if __name__ == "__main__":
    pretend.main(run, ready)
