

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


def add_adapters(model, layers, modules=(), bias="none", dtype=None, lower=False):
    """Freezes a model and puts adapters around layers, as PEFT's get_peft_model."""
    def replace(path, new):
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)

    found = [(path, m, make) for path, m in model.named_modules() for patterns, make in layers if any(fnmatch.fnmatchcase(path, p) for p in patterns)]
    saved = [(path, m) for path, m in model.named_modules() if path and any(fnmatch.fnmatchcase(path, p) for p in modules)]
    for name, p in model.named_parameters():
        p.requires_grad_(bias == "all" and "bias" in name)
    added = []
    for path, layer, make in found:
        adapter = make(layer)
        if bias not in ("none", "all") and getattr(layer, "bias", None) is not None:
            layer.bias.requires_grad_(True)
        first = getattr(layer, "compute_dtype", layer.weight.dtype)
        for name, p in adapter.named_parameters():
            if not name.startswith("base_layer."):
                p.data = p.data.to(layer.weight.device, dtype=first if first.is_floating_point else p.dtype)
        for name, b in adapter._buffers.items():
            adapter._buffers[name] = b.to(layer.weight.device)
        if hasattr(adapter, "start"):
            adapter.start()
        added += [p for name, p in adapter.named_parameters() if not name.startswith("base_layer.")]
        replace(path, adapter)
    for path, module in saved:
        replace(path, ModulesToSave(module))
    for p in added:
        if dtype is not None and p.dtype != dtype:
            p.data = p.data.to(dtype)
    for p in model.parameters() if lower else []:
        if any(p is a for a in added):
            p.data = p.data.to(torch.bfloat16)
