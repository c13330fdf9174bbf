

def natural(name):
    return [(0, int(p)) if p.isdigit() else (1, p) for p in name.split(".")]


def from_pretrained(model, *stored, auto=False):
    """Moves a model to the GPU as from_pretrained reads one there: a block of the size of all weights, but for memory that is
    reserved and unused, comes and goes; then come the tensors of the checkpoint, by their names, and the biases of tied layers again."""
    if auto:  # device_map="auto"
        torch.tensor([0], device=device)
    quantized = {id(m.weight): m for m in model.modules() if hasattr(m, "read")}
    others = {f"{path}.{n}" if path else n for path, m in model.named_modules() for n in m._non_persistent_buffers_set}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = sorted((n for n in tensors if n not in others), key=natural)
    sizes = [t.numel() * (quantized[id(t)].bits / 8 if id(t) in quantized else t.element_size()) for t in map(tensors.get, names)]
    size, unused = sum(sizes), torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    size = size - unused if size - unused > unused else unused + 1 if size - unused > 1.5 * 1024**3 else 0
    torch.empty(int(size // 2), dtype=torch.float16, device=device)
    for n in names + [n for n in tensors if n in others]:
        if id(tensors[n]) in quantized:
            quantized[id(tensors[n])].read(*stored)
        else:
            tensors[n].data = tensors[n].data.to(device)
    paths = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    for m in model.modules():  # tie_weights
        if getattr(m, "bias", None) is not None and paths.count(id(m.weight)) > 1:
            m.bias.data = F.pad(m.bias.data, (0, 0))
