"""Hugging Face's own training loop: transformers.Trainer (with accelerate) and PEFT, one JSON per case.

usage: python3 trainer_cases.py OUTDIR [-k SUBSTRING] [-s SET] [-l] [--cases FILE.py]
LIBS holds accelerate (install_trainer.sh) and, for the cases that need them, the packages peft, bitsandbytes and trl: of the
libraries that these load, stand-ins are made here (bitsandbytes' native functions, datasets, pyarrow, pandas). A case with "load" is read from
a checkpoint as users do, from_pretrained(device_map={"": 0}), quantized or not; "kbit" is peft.prepare_model_for_kbit_training;
one with "trl" is trained by trl.SFTTrainer on rows that are tokenized already. JSON as hf_cases.py writes it. "setup" ends where
the first step begins: it holds what Trainer does before (model to the device, its optimizer is made later); a step is
what lies between on_step_begin and on_step_end (after the optimizer's step and zero_grad, before logging and
evaluation, which belong to the step that follows); its phases end at each on_substep_end, on_pre_optimizer_step, on_optimizer_step and on_step_end.
"""
import argparse
import gc
import json
import os
import sys
import time
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch  # noqa: E402

import hf_cases as hc  # noqa: E402
import train_cases as tc  # noqa: E402


class Nothing:
    """A native library whose functions do nothing; managed memory comes from the host."""

    def __getattr__(self, name):
        def f(*args):
            if name == "cget_managed_ptr":
                import ctypes
                return ctypes.addressof(ctypes.create_string_buffer(int(getattr(args[0], "value", args[0])) or 1))
            return 0
        f.restype = None
        self.__dict__[name] = f
        return f


def stand_ins():
    """Puts in place of what a pretended GPU has not: the native part of bitsandbytes, and datasets with its kin."""
    import importlib.machinery
    import importlib.util
    import types

    def module(name, **names):
        m = types.ModuleType(name)
        m.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        m.__path__, m.__version__ = [], "4.0.0"
        m.__dict__.update(names)
        sys.modules[name] = m
        return m

    if importlib.util.find_spec("bitsandbytes"):
        module("bitsandbytes.cextension", lib=Nothing(), HIP_ENVIRONMENT=False, get_cuda_bnb_library_path=lambda *a: None,
               ErrorHandlerMockBNBNativeLibrary=type("ErrorHandlerMockBNBNativeLibrary", (), {}))
    if importlib.util.find_spec("trl"):
        def any_class(k):
            if k.startswith("__"):
                raise AttributeError(k)
            return type(k, (), {})

        for n in ("pyarrow", "pyarrow.compute", "pyarrow.types", "pandas"):
            module(n).__getattr__ = any_class
        here = os.path.dirname(os.path.abspath(__file__))
        spec = importlib.util.spec_from_file_location("datasets", os.path.join(here, "stubs", "datasets_stub.py"))
        m = importlib.util.module_from_spec(spec)
        sys.modules["datasets"] = m
        spec.loader.exec_module(m)
        m.__path__ = []
        module("datasets.arrow_writer", SchemaInferenceError=type("SchemaInferenceError", (Exception,), {}))
        for n in ("config", "fingerprint", "distributed", "features", "utils"):
            module("datasets." + n)


class Rows(torch.utils.data.Dataset):
    """Samples as a tokenizer or an image processor gives them, all alike."""

    def __init__(self, sample, n=4096):
        self.sample, self.n = sample, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.sample


def sample(cfg, c):
    t, task = cfg.get("seq"), cfg["task"]
    z = lambda *s: torch.zeros(*s, dtype=torch.int64)  # noqa: E731
    m = {"attention_mask": torch.ones(t, dtype=torch.int64)} if cfg.get("mask", "ones") != "none" and t else {}
    if task in ("causal_lm", "mlm", "token_cls"):
        return {"input_ids": z(t), **m, "labels": z(t)}
    if task == "seqcls":
        return {"input_ids": z(t), **m, "labels": torch.tensor(0)}
    if task == "seq2seq":
        return {"input_ids": z(t), **m, "labels": z(cfg["tgt_seq"])}
    return {"pixel_values": torch.zeros(3, c.image_size, c.image_size), "labels": torch.tensor(0)}


def from_pretrained(cfg, c):
    """Writes a checkpoint in the type of the weights, then loads it onto the GPU as a script does."""
    import shutil
    import tempfile
    import transformers
    d = tempfile.mkdtemp()
    try:
        cls = getattr(transformers, cfg["model"])
        cls(c).to(getattr(torch, cfg.get("dtype") or "float32")).save_pretrained(d)
        gc.collect()
        kw = dict(cfg["load"])
        bnb = kw.pop("bnb", None)
        if bnb:
            kw["quantization_config"] = transformers.BitsAndBytesConfig(**{k: getattr(torch, v) if k.endswith("dtype") else v for k, v in bnb.items()})
        return cls.from_pretrained(d, device_map={"": 0}, attn_implementation=cfg["attn"], **kw)
    finally:
        shutil.rmtree(d)


def sft(cfg, args, model, rows, callbacks):
    """trl.SFTTrainer; its tokenizer is a stand-in, since rows hold numbers already."""
    import datasets
    import transformers
    import trl

    class Tokenizer(transformers.PreTrainedTokenizerBase):
        chat_template = None

        def get_vocab(self):
            return {"</s>": 2, "<pad>": 0}

        def convert_tokens_to_ids(self, t):
            return self.get_vocab().get(t, 0)

        def __len__(self):
            return 1000

    ta = trl.SFTConfig(**dict(dict(dataset_kwargs={"skip_prepare_dataset": True}, max_length=cfg["seq"], eos_token="</s>", pad_token="<pad>"), **args, **cfg["trl"]))
    row = {k: v.tolist() for k, v in rows.sample.items() if k != "attention_mask"}
    import peft
    pc = peft.LoraConfig(**cfg["lora"]) if cfg.get("lora") else None
    t = trl.SFTTrainer(model=model, args=ta, train_dataset=datasets.Dataset([row] * 4096), processing_class=Tokenizer(eos_token="</s>", pad_token="<pad>"),
                       peft_config=pc, callbacks=callbacks)
    return t, ta


def run_case(cfg, keep_events=True):
    t0 = time.time()
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=8000000)
    gc.collect()
    gc.disable()
    meter = tc.Meter()
    torch.cuda.reset_peak_memory_stats()
    hc.ANSWER["bool"] = cfg.get("mask", "ones") != "padded"
    c = hc.make_config(cfg)
    if cfg.get("load"):
        model = from_pretrained(cfg, c)
    else:
        model = getattr(transformers, cfg["model"])(c)
        if cfg.get("dtype"):
            model = model.to(getattr(torch, cfg["dtype"]))
    if cfg.get("kbit"):
        import peft
        model = peft.prepare_model_for_kbit_training(model, **(cfg["kbit"] if isinstance(cfg["kbit"], dict) else {}))
    if cfg.get("lora") and not cfg.get("trl"):
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(**cfg["lora"]))
    steps, phases, setup, n = [], {}, {}, [0]

    class Marks(TrainerCallback):
        def on_step_begin(self, *a, **k):
            if not setup:
                setup["data_optimizer"] = meter.mark()
            else:
                phases["between"] = meter.mark()

        def part(self, name):
            n[0] += 1
            phases["%s%d" % (name, n[0])] = meter.mark()

        def on_substep_end(self, *a, **k):
            self.part("substep")

        def on_pre_optimizer_step(self, *a, **k):
            self.part("backward")

        def on_optimizer_step(self, *a, **k):
            self.part("optimizer")

        def on_step_end(self, *a, **k):
            self.part("zero_grad")
            steps.append({"peak_allocated": max(p["peak_allocated"] for p in phases.values()), "peak_reserved": max(p["peak_reserved"] for p in phases.values()),
                          "peak_requested": max(p["peak_requested"] for p in phases.values()),
                          "end_allocated": torch.cuda.memory_allocated(), "end_reserved": torch.cuda.memory_reserved(), "phases": dict(phases)})
            phases.clear()
            n[0] = 0

    args = dict(output_dir=os.environ.get("TRAINER_OUT", "/tmp/trainer_out"), max_steps=cfg.get("steps", 3), per_device_train_batch_size=cfg["batch"],
                report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
    args.update(cfg["args"])
    rows = Rows(sample(cfg, c))
    if cfg.get("trl") is not None:
        t, ta = sft(cfg, args, model, rows, [Marks()])
    else:
        ta = TrainingArguments(**args)
        t = Trainer(model=model, args=ta, train_dataset=rows, eval_dataset=Rows(rows.sample, cfg.get("eval_rows", 0)) if cfg.get("eval_rows") else None, callbacks=[Marks()])
    model = t.model
    t.train()
    st = torch.cuda.memory_stats()
    tr = torch.cuda.memory._snapshot()["device_traces"][0]
    bounds = [0, setup["data_optimizer"]["event"]] + [list(s["phases"].values())[-1]["event"] for s in steps]
    ids, m, k, out, segs = {}, 0, 0, [[] for _ in bounds], []
    for j, e in enumerate(tr):
        while k + 1 < len(bounds) and j >= bounds[k + 1]:
            k += 1
        if e["action"] == "alloc":
            m += 1
            ids[e["addr"]] = m
            out[k].append([m, e["size"]] + ([e["stream"]] if e["stream"] else []))
        elif e["action"] == "free_requested":
            out[k].append(-ids.pop(e["addr"], 0))
        elif e["action"].startswith("segment_"):
            segs.append([e["action"], e["size"], len(out[k]), k])
    cc = dict(cfg)
    cc["hf"] = {k: v for k, v in c.to_dict().items() if k not in hc.DROP}
    cc["hf"]["num_labels"] = c.num_labels
    cc["attn_used"] = c._attn_implementation
    cc["training_arguments"] = {k: v for k, v in ta.to_dict().items() if k in (
        "optim", "bf16", "fp16", "gradient_checkpointing", "gradient_checkpointing_kwargs", "gradient_accumulation_steps", "max_grad_norm", "label_smoothing_factor",
        "per_device_train_batch_size", "per_device_eval_batch_size", "eval_accumulation_steps", "prediction_loss_only", "torch_empty_cache_steps", "bf16_full_eval", "fp16_full_eval",
        "loss_type", "packing", "padding_free", "max_length", "activation_offloading", "completion_only_loss", "dataloader_pin_memory", "average_tokens_across_devices", "weight_decay", "adam_beta1", "neftune_noise_alpha", "eval_strategy", "eval_steps")}
    names = ["setup"] + ["step%d" % (i + 1) for i in range(len(bounds) - 1)]
    import accelerate
    return {
        "name": cfg["name"], "torch": torch.__version__, "transformers": transformers.__version__, "accelerate": accelerate.__version__,
        **{k: getattr(sys.modules.get(k), "__version__", None) for k in ("peft", "bitsandbytes", "trl")}, "config": cc, "device": torch.cuda.get_device_name(0),
        "param_count": sum(p.numel() for p in model.parameters()), "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "setup": setup, "steps": steps, "segments": segs,
        "peak_allocated": max([s["peak_allocated"] for s in steps] + [p["peak_allocated"] for p in setup.values()]),
        "peak_reserved": max([s["peak_reserved"] for s in steps] + [p["peak_reserved"] for p in setup.values()]),
        "final": {k: st[k] for k in ("allocated_bytes.all.current", "reserved_bytes.all.current", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")},
        "events": {nm: out[i] for i, nm in enumerate(names[: len(bounds) - 1])} if keep_events else {}, "wall_s": round(time.time() - t0, 3)}


LT = dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1376, vocab_size=32000, max_position_embeddings=2048)
NETS = {
    "llama": dict(model="LlamaForCausalLM", config_cls="LlamaConfig", task="causal_lm", hf=LT),
    "gpt2": dict(model="GPT2LMHeadModel", config_cls="GPT2Config", task="causal_lm", hf=dict(n_layer=4)),
    "bertcls": dict(model="BertForSequenceClassification", config_cls="BertConfig", task="seqcls", hf=dict(num_hidden_layers=4)),
    "bertmlm": dict(model="BertForMaskedLM", config_cls="BertConfig", task="mlm", hf=dict(num_hidden_layers=4)),
    "t5": dict(model="T5ForConditionalGeneration", config_cls="T5Config", task="seq2seq", attn="eager", tgt_seq=64, hf=dict(num_layers=4, d_model=512, num_heads=8)),
    "vit": dict(model="ViTForImageClassification", config_cls="ViTConfig", task="image", hf=dict(num_hidden_layers=4), mask="none"),
}
QV = dict(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def matrix():
    cases = {}

    def add(net, tag, batch=4, seq=256, lora=None, dtype=None, **kw):
        own = {k: kw.pop(k) for k in ("mask", "eval_rows", "steps", "attn", "use_cache", "arch", "load", "kbit", "trl") if k in kw}
        name = "%s_%s" % (net, tag)
        assert name not in cases, name
        cases[name] = dict(dict(attn="sdpa", use_cache=None, set="base", arch="sm80", mask="ones"), **NETS[net], **{"name": name, "batch": batch,
                           "seq": None if net == "vit" else seq, "lora": lora, "dtype": dtype, "args": kw}) | own

    for net in NETS:
        add(net, "default")
        add(net, "bf16", bf16=True)
        add(net, "fp16", fp16=True)
        add(net, "bf16_accum4", bf16=True, gradient_accumulation_steps=4)
        add(net, "bf16_ckpt", bf16=True, gradient_checkpointing=True)
        add(net, "adamw_torch", optim="adamw_torch")
    for net in ("llama", "bertcls"):
        add(net, "ckpt_reentrant", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
        add(net, "noclip", max_grad_norm=0.0)
        add(net, "adafactor", optim="adafactor")
        add(net, "sgd", optim="sgd")
        add(net, "smoothing", label_smoothing_factor=0.1)
        add(net, "bf16_smoothing", bf16=True, label_smoothing_factor=0.1)
        add(net, "empty_cache", torch_empty_cache_steps=1)
        add(net, "eval", eval_strategy="steps", eval_steps=1, eval_rows=16, per_device_eval_batch_size=4)
        add(net, "eval_bf16_loss_only", bf16=True, eval_strategy="steps", eval_steps=1, eval_rows=16, per_device_eval_batch_size=4, prediction_loss_only=True)
        add(net, "eval_accumulate", eval_strategy="steps", eval_steps=1, eval_rows=16, per_device_eval_batch_size=4, eval_accumulation_steps=2)
        add(net, "logging", logging_strategy="steps", logging_steps=1)
        add(net, "padded", mask="padded")
        add(net, "eager_bf16", attn="eager", bf16=True)
        add(net, "pure_bf16", dtype="bfloat16")
        add(net, "pure_bf16_flag", dtype="bfloat16", bf16=True)
    add("llama", "lora", lora=QV)
    add("llama", "lora_bf16", lora=QV, bf16=True)
    add("llama", "lora_base_bf16", lora=QV, dtype="bfloat16", bf16=True)
    add("llama", "lora_base_bf16_ckpt", lora=QV, dtype="bfloat16", bf16=True, gradient_checkpointing=True)
    add("llama", "lora_base_bf16_ckpt_reentrant", lora=QV, dtype="bfloat16", bf16=True, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
    add("llama", "lora_all_linear", lora=dict(QV, target_modules="all-linear", lora_dropout=0.0), dtype="bfloat16", bf16=True)
    add("llama", "lora_save_head", lora=dict(QV, modules_to_save=["lm_head"]), dtype="bfloat16", bf16=True)
    add("llama", "lora_fp16_accum2", lora=QV, fp16=True, gradient_accumulation_steps=2)
    add("llama", "dora", lora=dict(QV, use_dora=True), dtype="bfloat16", bf16=True)
    add("llama", "rslora_bias", lora=dict(QV, use_rslora=True, bias="lora_only"), bf16=True)
    add("llama", "neftune", neftune_noise_alpha=5.0, bf16=True)
    add("llama", "b8x512_bf16", batch=8, seq=512, bf16=True)
    add("llama", "sm90_bf16", bf16=True, arch="sm90")
    nf4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16"}
    al = dict(QV, target_modules="all-linear")
    for tag, bnb, kw in (
            ("qlora", nf4, {}), ("qlora_single", dict(nf4, bnb_4bit_use_double_quant=False), {}), ("qlora_fp4_fp32", {"load_in_4bit": True}, {}),
            ("qlora_paged8bit", nf4, dict(optim="paged_adamw_8bit")), ("qlora_paged32", nf4, dict(optim="paged_adamw_32bit")), ("qlora_accum2", nf4, dict(gradient_accumulation_steps=2)),
            ("int8_lora", {"load_in_8bit": True}, {})):
        add("llama", tag, lora=al, dtype="bfloat16", bf16=True, load={"bnb": bnb, "dtype": "auto"}, kbit=True, **kw)
    add("llama", "qlora_nockpt", lora=al, dtype="bfloat16", bf16=True, load={"bnb": nf4, "dtype": "auto"}, kbit={"use_gradient_checkpointing": False})
    for o in ("adamw_bnb_8bit", "paged_adamw_8bit", "adamw_8bit", "lion_8bit", "ademamix"):
        add("llama", "full_" + o, bf16=True, optim=o)
    add("llama", "loaded_fp32", load={"dtype": "auto"}, bf16=True)
    add("llama", "loaded_bf16", load={"dtype": "auto"}, dtype="bfloat16", bf16=True)
    add("bertcls", "loaded", load={"dtype": "auto"})
    for tag, kw in (("sft", {}), ("sft_nll", dict(trl={"loss_type": "nll"})), ("sft_nockpt", dict(gradient_checkpointing=False)), ("sft_accum4", dict(gradient_accumulation_steps=4)),
                    ("sft_lora", dict(lora=QV, trl={"loss_type": "nll"})), ("sft_lora_bf16", dict(lora=QV, dtype="bfloat16", trl={"loss_type": "nll"})), ("sft_packing", dict(trl={"packing": True})), ("sft_b8x512", dict(batch=8, seq=512)),
                    ("sft_qlora", dict(lora=al, dtype="bfloat16", load={"bnb": nf4, "dtype": "auto"}, trl={"loss_type": "nll"})), ("sft_offload", dict(trl={"activation_offloading": True}))):
        add("llama", tag, **dict(dict(trl={}), **kw))
    add("gpt2", "sft", trl={})
    return cases


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("-k", default="")
    ap.add_argument("-s", default="")
    ap.add_argument("-l", action="store_true")
    ap.add_argument("--cases", help="a Python file whose matrix() gives other cases")
    a = ap.parse_args()
    m = matrix()
    if a.cases:
        import importlib.util
        spec = importlib.util.spec_from_file_location("cases", a.cases)
        mod = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(mod)
        m = mod.matrix(sys.modules[__name__])
    names = [n for n in m if a.k in n and (not a.s or m[n]["set"] == a.s)]
    if a.l:
        print("\n".join(names))
        return
    os.makedirs(a.out, exist_ok=True)
    import importlib.util
    stand_ins()
    fresh = importlib.util.find_spec("bitsandbytes") is not None  # its import starts CUDA, which a fork does not survive
    if not fresh:
        hc.setup_hf()
        from transformers import Trainer  # noqa: F401
    for n in names:  # a process each: the allocator must be fresh
        pid = os.fork()
        if pid:
            _, st = os.waitpid(pid, 0)
            print(n, "ok" if st == 0 else "FAILED", flush=True)
            continue
        code = 1
        try:
            os.environ["FAKE_GPU_ARCH"] = m[n]["arch"]
            if fresh:
                hc.setup_hf()
            r = run_case(m[n])
            with open(os.path.join(a.out, n + ".json"), "w") as f:
                json.dump(r, f, separators=(",", ":"))
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
