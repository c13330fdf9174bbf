

class IA3Linear(Adapter):
    """A linear layer with (IA)3, whose output is scaled."""

    def __init__(self, base_layer):
        super().__init__(base_layer)
        self.ia3_l = nn.Parameter(torch.ones(features(base_layer)[1], 1))

    def forward(self, x):
        ia3_scaling = 1 * self.ia3_l.flatten()
        result = self.base_layer(x)
        result_dtype = result.dtype
        result = (result * ia3_scaling).to(result_dtype)
        return result
