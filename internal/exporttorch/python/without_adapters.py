

def without_adapters(model, *args):
    """Calls a model with its adapters disabled, as within PEFT's disable_adapter."""
    found = [(m, m._modules.get("base_layer", m._modules.get("original_module"))) for m in model.modules()]
    found = [(m, base) for m, base in found if base is not None]
    for m, base in found:
        m.__dict__["forward"] = base.__call__
    try:
        return model(*args)
    finally:
        for m, base in found:
            del m.__dict__["forward"]
