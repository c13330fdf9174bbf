

class ModulesToSave(nn.Module):
    """A module of which a copy is trained, as PEFT's ModulesToSaveWrapper."""

    def __init__(self, module):
        super().__init__()
        self.original_module = module
        self.modules_to_save = copy.deepcopy(module).requires_grad_(True)

    def forward(self, *args):
        return self.modules_to_save(*args)


def add_adapters(model, kinds, targets, excluded, modules, r, alpha, dropout, dtype, bias="none"):
    """Freezes a model on the GPU and adds adapters, as PEFT's get_peft_model."""
    def fits(patterns, path):
        return any(fnmatch.fnmatchcase(path, p) for p in patterns)

    def replace(path, new):
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)

    layers = [(path, m) for path, m in model.named_modules() if type(m) in kinds and fits(targets, path) and not fits(excluded, path)]
    saved = [(path, m) for path, m in model.named_modules() if path and fits(modules, path)]
    for name, p in model.named_parameters():
        p.requires_grad_(bias == "all" and "bias" in name)
    added = []
    for path, layer in layers:
        adapter = kinds[type(layer)](layer, r, alpha, dropout)
        if bias == "lora_only" and getattr(layer, "bias", None) is not None:
            layer.bias.requires_grad_(True)
        for name, p in adapter.named_parameters():
            if name.startswith("lora_"):
                p.data = p.data.to(device, dtype=layer.weight.dtype if layer.weight.is_floating_point() else p.dtype)
                added.append(p)
        replace(path, adapter)
    for path, module in saved:
        replace(path, ModulesToSave(module))
    for p in added:
        if p.dtype != dtype:
            p.data = p.data.to(dtype)
