

# What follows stands for bitsandbytes, whose kernels write into tensors like these.


def bnb_linear(model, kind, modules, excluded, **options):
    """Puts quantized layers in the place of linear ones; .to(device) quantizes them."""
    def fits(patterns, path):
        return any(fnmatch.fnmatchcase(path, p) for p in patterns)

    for path, layer in list(model.named_modules()):
        if isinstance(layer, LINEAR) and fits(modules, path) and not fits(excluded, path):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, kind(layer, **options))


class QuantizedLinear(nn.Linear):
    def __init__(self, layer):
        nn.Module.__init__(self)
        self.weight = nn.Parameter(layer.weight.data, requires_grad=False)
        self.out_features, self.in_features = layer.weight.shape if isinstance(layer, nn.Linear) else layer.weight.shape[::-1]
        self.bias = layer.bias
        self.transposed = not isinstance(layer, nn.Linear)
        self.loaded = False

    def _apply(self, fn, recurse=True):
        if not self.loaded:
            self.load(fn)
            self.loaded = True
        return super()._apply(fn, recurse)
