

class LoraConv(LoraLayer):
    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        conv = type(base_layer)
        self.lora_A = conv(base_layer.in_channels, r, base_layer.kernel_size, base_layer.stride, base_layer.padding, bias=False)
        self.lora_B = conv(r, base_layer.out_channels, 1, bias=False)
