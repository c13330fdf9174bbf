

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
