"a model: a training step, written by memplan export torch."
import copy
import fnmatch
import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("position_ids_buffer", torch.zeros(1, 64, dtype=torch.int64), persistent=False)
        self.register_buffer("token_type_ids_buffer", torch.zeros(1, 64, dtype=torch.int64), persistent=False)
        self.word_embeddings = nn.Embedding(200, 64, padding_idx=0)
        self.position_embeddings = nn.Embedding(64, 64)
        self.token_type_embeddings = nn.Embedding(2, 64)
        self.LayerNorm = nn.LayerNorm(64, eps=1e-12)
        self.dropout = nn.Dropout(p=0.1)

    def forward(self, input_ids, token_type_ids, position_ids, inputs_embeds):
        position_ids = self.position_ids_buffer[:, 0:40]
        buffered_token_type_ids = self.token_type_ids_buffer.expand(1, -1)
        buffered_token_type_ids = torch.gather(buffered_token_type_ids, 1, position_ids)
        token_type_ids = buffered_token_type_ids.expand(2, 40)
        token_type_embeddings = self.token_type_embeddings(token_type_ids)
        embeddings = inputs_embeds + token_type_embeddings
        position_embeddings = self.position_embeddings(position_ids)
        embeddings = embeddings + position_embeddings
        embeddings = self.LayerNorm(embeddings)
        embeddings = self.dropout(embeddings)
        return embeddings


class BertSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(64, 64)
        self.key = nn.Linear(64, 64)
        self.value = nn.Linear(64, 64)

    def sdpa_attention_forward(self, query, key, value, attention_mask):
        attn_output = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1 if self.training else 0.0, is_causal=False, scale=0.17677669529663687, enable_gqa=False)
        attn_output = attn_output.transpose(1, 2).contiguous()
        return attn_output, None

    def forward(self, hidden_states, attention_mask):
        query_layer = self.query(hidden_states).view(2, 40, -1, 32).transpose(1, 2)
        key_layer = self.key(hidden_states).view(2, 40, -1, 32).transpose(1, 2)
        value_layer = self.value(hidden_states).view(2, 40, -1, 32).transpose(1, 2)
        attn_output, attn_weights = self.sdpa_attention_forward(query_layer, key_layer, value_layer, attention_mask)
        attn_output = attn_output.reshape(2, 40, -1).contiguous()
        return attn_output, attn_weights


class BertSelfOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 64)
        self.LayerNorm = nn.LayerNorm(64, eps=1e-12)
        self.dropout = nn.Dropout(p=0.1)

    def forward(self, hidden_states, input_tensor):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.LayerNorm(hidden_states + input_tensor)
        return hidden_states


class BertAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention = BertSelfAttention()
        self.output = BertSelfOutput()

    def forward(self, hidden_states, attention_mask):
        attention_output, attn_weights = self.self_attention(hidden_states, attention_mask)
        attention_output = self.output(attention_output, hidden_states)
        return attention_output, attn_weights


class ActGelu(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.gelu(x)


class BertIntermediate(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 96)
        self.intermediate_act_fn = ActGelu()

    def forward(self, hidden_states):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.intermediate_act_fn(hidden_states)
        return hidden_states


class BertSelfOutput2(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(96, 64)
        self.LayerNorm = nn.LayerNorm(64, eps=1e-12)
        self.dropout = nn.Dropout(p=0.1)

    def forward(self, hidden_states, input_tensor):
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.LayerNorm(hidden_states + input_tensor)
        return hidden_states


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = BertAttention()
        self.intermediate = BertIntermediate()
        self.output = BertSelfOutput2()

    def feed_forward_chunk(self, attention_output):
        intermediate_output = self.intermediate(attention_output)
        layer_output = self.output(intermediate_output, attention_output)
        return layer_output

    def forward(self, hidden_states, attention_mask):
        self_attention_output, _ = self.attention(hidden_states, attention_mask)
        attention_output = self_attention_output
        layer_output = self.feed_forward_chunk(attention_output)
        return layer_output


class BertEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList([BertLayer()])

    def forward(self, hidden_states, attention_mask):
        hidden_states = self.layer[0](hidden_states, attention_mask)
        return hidden_states


class BertPooler(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 64)
        self.activation = nn.Tanh()

    def forward(self, hidden_states):
        first_token_tensor = hidden_states[:, 0]
        pooled_output = self.dense(first_token_tensor)
        pooled_output = self.activation(pooled_output)
        return pooled_output


class BertModelOfEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.encoder = BertEncoder()
        self.pooler = BertPooler()

    def preprocess_mask_arguments(self, inputs_embeds, attention_mask, position_ids):
        attention_mask = attention_mask.bool()
        return attention_mask

    def sdpa_mask(self, inputs_embeds, attention_mask, block_sequence_ids):
        full = torch.all(attention_mask)
        del full
        return None

    def mask_interface(self, inputs_embeds, attention_mask, block_sequence_ids):
        allowed = self.sdpa_mask(inputs_embeds, attention_mask, block_sequence_ids)
        return allowed

    def create_bidirectional_mask(self, inputs_embeds, attention_mask):
        attention_mask = self.preprocess_mask_arguments(inputs_embeds, attention_mask, None)
        attention_mask = self.mask_interface(inputs_embeds, attention_mask, None)
        return attention_mask

    def forward(self, input_ids, attention_mask, inputs_embeds):
        embedding_output = self.embeddings(input_ids, None, None, inputs_embeds)
        attention_mask = self.create_bidirectional_mask(embedding_output, attention_mask)
        layer_mask = None
        sequence_output = self.encoder(embedding_output, layer_mask)
        pooled_output = self.pooler(sequence_output)
        return pooled_output, sequence_output


class PromptEncoderMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 64)])

    def forward(self, x):
        for module in self.layers:
            x = module(x)
        return x


class PromptEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 64)
        self.mlp_head = PromptEncoderMLP()

    def forward(self, indices):
        input_embeds = self.embedding(indices)
        output_embeds = self.mlp_head(input_embeds)
        return output_embeds


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModelOfEmbeddings()
        self.dropout = nn.Dropout(p=0.1)
        self.classifier = nn.Linear(64, 2)
        self.prompt_encoder = PromptEncoder()
        self.word_embeddings = nn.Embedding(200, 64, padding_idx=0)
        self.loss_fct = nn.CrossEntropyLoss()
        self.word_embeddings.weight = self.bert.embeddings.word_embeddings.weight

    def get_prompt(self, inputs_embeds):
        prompt_tokens = torch.zeros(2, 8, dtype=torch.int64, device=device)
        prompt_tokens = prompt_tokens[:1]
        prompts = self.prompt_encoder(prompt_tokens)
        prompts = torch.tile(prompts, (2, 1, 1))
        return prompts

    def base_model_forward(self, input_ids, inputs_embeds, attention_mask, labels, num_items_in_batch):
        outputs = self.bert(None, attention_mask, inputs_embeds)
        pooled_output = outputs[0]
        pooled_output = self.dropout(pooled_output)
        logits = self.classifier(pooled_output)
        loss = self.loss_fct(logits.view(-1, 2), labels.view(-1))
        return logits, loss

    def forward(self, input_ids, labels, attention_mask):
        prefix_attention_mask = torch.ones(2, 8, device=device)
        attention_mask = torch.cat([prefix_attention_mask, attention_mask], 1)
        inputs_embeds = self.word_embeddings(input_ids)
        prompts = self.get_prompt(inputs_embeds)
        prompts = prompts.type_as(inputs_embeds)
        inputs_embeds = torch.cat([prompts, inputs_embeds], 1)
        return self.base_model_forward(None, inputs_embeds, attention_mask, labels, None)


class Adapter(nn.Module):
    """A module around a layer, as PEFT's BaseTunerLayer."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer

    @property
    def weight(self):
        return self.base_layer.weight

    @property
    def bias(self):
        return self.base_layer.bias


def features(layer):
    """The numbers of input and output features of a linear layer."""
    if hasattr(layer, "in_features"):
        return layer.in_features, layer.out_features
    return tuple(layer.weight.shape)  # Conv1D of transformers


class ModulesToSave(nn.Module):
    """A module of which a copy is trained, as PEFT's ModulesToSaveWrapper."""

    def __init__(self, module):
        super().__init__()
        self.original_module = module
        self.modules_to_save = copy.deepcopy(module).requires_grad_(True)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("modules_to_save"), name)

    def forward(self, *args):
        return self.modules_to_save(*args)


def add_adapters(model, layers, parameters=(), modules=(), bias="none", dtype=None, lower=False):
    """Freezes a model and puts adapters around layers, as PEFT's get_peft_model."""
    def replace(path, new):
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)

    found = [(path, m, make) for group in (layers, parameters) for path, m in model.named_modules() for patterns, make in group if any(fnmatch.fnmatchcase(path, p) for p in patterns)]
    saved = [(path, m) for path, m in model.named_modules() if path and any(fnmatch.fnmatchcase(path, p) for p in modules)]
    for name, p in model.named_parameters():
        p.requires_grad_(bias == "all" and "bias" in name)
    added = []
    for path, layer, make in found:
        own = {id(p) for p in layer.parameters()}
        adapter = make(layer)
        if bias not in ("none", "all") and getattr(layer, "bias", None) is not None:
            layer.bias.requires_grad_(True)
        weight = layer.weight if hasattr(layer, "weight") else next(layer.parameters())
        first = getattr(layer, "compute_dtype", weight.dtype)
        for p in adapter.parameters():
            if id(p) not in own:
                p.data = p.data.to(weight.device, dtype=first if first.is_floating_point else p.dtype)
        for name, b in adapter._buffers.items():
            adapter._buffers[name] = b.to(weight.device)
        if hasattr(adapter, "start"):
            adapter.start()
        added += [p for p in adapter.parameters() if id(p) not in own]
        replace(path, adapter)
    for path, module in saved:
        replace(path, ModulesToSave(module))
    added = {id(p) for p in added}
    for p in model.parameters():
        if id(p) in added and dtype is not None and p.dtype != dtype:
            p.data = p.data.to(dtype)
    for p in model.parameters() if lower else []:
        if id(p) in added:
            p.data = p.data.to(torch.bfloat16)


device = torch.device("cuda")
model = Model()
add_adapters(model, [
], modules=["classifier"])
model.prompt_encoder.requires_grad_(True)
model.to(device)
optimizer = torch.optim.AdamW([
    {"params": [p for name, p in model.named_parameters() if not covers(["*bias*", "*LayerNorm*"], name) and p.requires_grad]},
    {"params": [p for name, p in model.named_parameters() if covers(["*bias*", "*LayerNorm*"], name) and p.requires_grad], "weight_decay": 0.0},
], lr=5e-05, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)


def next_batch():
    input_ids = torch.zeros(2, 32, dtype=torch.int64)
    attention_mask = torch.zeros(2, 32, dtype=torch.int64)
    labels = torch.zeros(2, dtype=torch.int64)
    return input_ids.to(device), attention_mask.to(device), labels.to(device)


torch.cuda.empty_cache()
tr_loss = torch.zeros((), device=device)


for i in range(1, 4):
    torch.cuda.reset_peak_memory_stats()
    fetched = []
    fetched_batch = next_batch()
    fetched.append(fetched_batch)
    del fetched_batch
    counted = torch.sum(fetched[0][2] != (-100))
    total = counted + 0
    del counted
    num_items_in_batch = total
    del total
    batch_samples = fetched
    del fetched
    input_ids, attention_mask, labels = batch_samples[0]
    outputs = model(input_ids, labels, attention_mask)
    loss = outputs[-1]
    loss *= 1
    del outputs
    scaled = loss / 1
    scaled.backward()
    del scaled
    tr_loss_step = loss.detach()
    del loss
    found = torch.isnan(tr_loss_step)
    del found
    found = torch.isinf(tr_loss_step)
    del found
    tr_loss += tr_loss_step
    grad_norm = None
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(json.dumps({"step": i, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))
