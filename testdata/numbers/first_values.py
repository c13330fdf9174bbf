"""Means and standard deviations of the first weights of small Hugging Face models, which first_test.go reads.

usage: python3 first_values.py > first_values.json     (with transformers 5.12)
"""
import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM

SMALL = dict(
    vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=256,
    max_position_embeddings=64, n_embd=128, n_layer=2, n_head=4, n_positions=64, head_dim=32, num_local_experts=4, num_experts=4,
    num_experts_per_tok=2, moe_intermediate_size=64, image_size=32, patch_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    n_heads=4, n_layers=2, dim=128, hidden_dim=256, embedding_size=64,
)
MODELS = {
    AutoModelForCausalLM: ["gpt2", "llama", "qwen3", "gemma2", "bloom", "gpt_neox", "mixtral", "qwen2_moe", "gpt_oss", "nemotron"],
    AutoModelForMaskedLM: ["bert", "roberta", "distilbert", "albert"],
    AutoModelForImageClassification: ["vit", "dinov2"],
}


def main():
    torch.manual_seed(0)
    out = {}
    for auto, types in MODELS.items():
        for t in types:
            known = AutoConfig.for_model(t).to_dict()
            config = AutoConfig.for_model(t, **{k: v for k, v in SMALL.items() if k in known})
            model = auto.from_config(config)
            values = json.loads(config.to_json_string(use_diff=False)) | {"architectures": [type(model).__name__]}
            out[t] = {
                "config": values,
                "weights": {n: [p.numel(), float(p.double().mean()), float(p.double().std(unbiased=False))] for n, p in model.named_parameters()},
            }
    print(json.dumps(out))


main()
