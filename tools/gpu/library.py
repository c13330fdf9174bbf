"""A training loop of three steps around a model of a library.

usage: library.py timm|tv|tvdet|hf MODEL BATCH fp32|bf16|fp16 adamw|fused|sgd [last] [gc]
"""
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(0)
lib, name, batch, amp, opt = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
flags = sys.argv[6:]
dev = "cuda"
text = lib == "hf"
if lib == "timm":
    import timm
    model = timm.create_model(name, pretrained=False, num_classes=100)
    size = model.pretrained_cfg.get("input_size", (3, 224, 224))
elif lib == "tv":
    import torchvision
    model = torchvision.models.get_model(name, weights=None)
    size = (3, 299, 299) if "inception" in name else (3, 224, 224)
elif lib == "tvdet":
    import torchvision
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=21)
    size = (3, 256, 256)
else:
    import transformers as T
    small = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, vocab_size=32000, max_position_embeddings=1024)
    if name == "llama":
        model = T.LlamaForCausalLM(T.LlamaConfig(**small))
    elif name == "qwen3":
        model = T.Qwen3ForCausalLM(T.Qwen3Config(**small, head_dim=64))
    elif name == "mixtral":
        model = T.MixtralForCausalLM(T.MixtralConfig(**small, num_local_experts=4))
    elif name == "gpt2":
        model = T.GPT2LMHeadModel(T.GPT2Config(n_layer=4))
    elif name == "bert":
        model = T.BertForMaskedLM(T.BertConfig(num_hidden_layers=4))
    elif name == "t5":
        model = T.T5ForConditionalGeneration(T.T5Config(num_layers=3, num_decoder_layers=3))
    elif name == "vit":
        model = T.ViTForImageClassification(T.ViTConfig(num_hidden_layers=4))
        text = False
        size = (3, 224, 224)
    elif name == "whisper":
        model = T.WhisperForConditionalGeneration(T.WhisperConfig(d_model=256, encoder_layers=2, decoder_layers=2))
model = model.to(dev).train()
if "last" in flags:
    model = model.to(memory_format=torch.channels_last)
if "gc" in flags:
    model.gradient_checkpointing_enable()
make = {"adamw": lambda p: torch.optim.AdamW(p, lr=1e-4), "fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True), "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)}[opt]
optimizer = make(model.parameters())
dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[amp]
scaler = torch.amp.GradScaler("cuda", enabled=amp == "fp16", init_scale=64.0)
for step in range(3):
    with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
        if name == "whisper":
            loss = model(input_features=torch.randn(batch, 80, 3000, device=dev), labels=torch.randint(1, 1000, (batch, 64), device=dev)).loss
        elif text:
            ids = torch.randint(5, 3000, (batch, 512), device=dev)
            loss = model(input_ids=ids, labels=ids).loss
        else:
            x = torch.randn(batch, *size, device=dev)
            if "last" in flags:
                x = x.to(memory_format=torch.channels_last)
            if lib == "hf":
                loss = model(pixel_values=x, labels=torch.randint(0, 2, (batch,), device=dev)).loss
            elif lib == "tvdet":
                y = torch.randint(0, 21, (batch, *size[1:]), device=dev)
                loss = F.cross_entropy(model(x)["out"], y)
            else:
                out = model(x)
                out = out[0] if isinstance(out, tuple) else out
                loss = F.cross_entropy(out.float(), torch.randint(0, 100, (batch,), device=dev))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
