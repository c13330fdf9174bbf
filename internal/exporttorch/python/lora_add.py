

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
