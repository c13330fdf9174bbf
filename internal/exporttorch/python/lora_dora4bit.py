

class DoraLinear4bit(DoraLinear):
    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        self.transposed = False

    def start(self):
        self.copied = [copy.deepcopy(x) for x in (self.base_layer.state, self.base_layer.weight.data, self.base_layer.state)]
        super().start()
        del self.copied

    def base_weight(self):
        return dequantize_4bit(self.base_layer.weight, self.base_layer.state)

    def forward(self, x):
        result = self.base_layer(x)
        result = result.clone()
        requires_conversion = not torch.is_autocast_enabled()
        if requires_conversion:
            expected_dtype = result.dtype
            x = x.to(self.lora_A.weight.dtype)
        result = self.add_dora(x, result)
        if requires_conversion:
            result = result.to(expected_dtype)
        return result
