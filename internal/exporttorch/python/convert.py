

def convert(model, modules, dtype, except_=()):
    """Converts the parameters of modules one by one, but for quantized weights."""
    packed = {id(m.weight) for m in model.modules() if hasattr(m, "read")}
    for path, m in model.named_modules():
        for p in m.parameters(recurse=False) if covers(modules, path) and not covers(except_, path) else ():
            if p.is_floating_point() and id(p) not in packed:
                p.data = p.data.to(dtype)
