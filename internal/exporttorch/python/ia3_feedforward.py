

class IA3Feedforward(Adapter):
    """A linear layer with (IA)3, whose input is scaled."""

    def __init__(self, base_layer):
        super().__init__(base_layer)
        self.ia3_l = nn.Parameter(torch.ones(1, features(base_layer)[0]))

    def forward(self, x):
        previous_dtype = x.dtype
        ia3_scaling = 1 * self.ia3_l.flatten()
        x = x.to(self.ia3_l.dtype)
        interm = (x * ia3_scaling).to(previous_dtype)
        return self.base_layer(interm)
