

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


class LoraLayer(Adapter):
    """A layer with an adapter of rank r, as PEFT's LoraLayer."""

    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer)
        self.scaling = alpha / (math.sqrt(r) if rslora else r)
        self.lora_dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)
        result = result + self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling
        result = result.to(dtype)
        return result


class LoraLinear(LoraLayer):
    def __init__(self, base_layer, r, alpha, dropout, rslora=False, bias=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        in_features, out_features = features(base_layer)
        self.lora_A = nn.Linear(in_features, r, bias=False)
        self.lora_B = nn.Linear(r, out_features, bias=bias)
