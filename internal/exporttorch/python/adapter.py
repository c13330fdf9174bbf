

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
