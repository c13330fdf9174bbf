

class ParameterProxy(nn.Module):
    """What stands for a parameter that has an adapter while its module runs."""

    def __init__(self, delta_weight):
        super().__init__()
        self.delta_weight = delta_weight

    def forward(self, weight):
        return weight + self.delta_weight


class LoraParameter(Adapter):
    """A module with an adapter of one of its parameters, as PEFT's ParamWrapper."""

    def __init__(self, base_layer, name, r, alpha, rslora=False, transposed=False):
        super().__init__(base_layer)
        self.name, self.transposed = name, transposed
        self.scaling = alpha / (math.sqrt(r) if rslora else r)
        size = self.parameter().shape
        self.experts = size[0] if len(size) == 3 else 1
        out_features, in_features = (size[-1], size[-2]) if transposed else (size[-2], size[-1])
        self.lora_A = nn.Linear(in_features, r * self.experts, bias=False)
        self.lora_B = nn.Linear(r * self.experts, out_features, bias=False)

    def module(self):
        module = self.base_layer
        while isinstance(module, LoraParameter):
            module = module.base_layer
        return module

    def parameter(self):
        return getattr(self.module(), self.name)

    def get_delta_weight(self):
        weight_A, weight_B = self.lora_A.weight, self.lora_B.weight
        if self.experts == 1:
            delta_weight = weight_B @ weight_A * self.scaling
        else:
            weight_A = weight_A.reshape(self.experts, -1, weight_A.shape[-1])
            weight_B = weight_B.reshape(weight_B.shape[0], -1, self.experts)
            delta_weight = torch.einsum("o r e, e r i -> e i o" if self.transposed else "o r e, e r i -> e o i", weight_B, weight_A) * self.scaling
        param = self.parameter()
        delta_weight = delta_weight.to(param.device, param.dtype)
        return delta_weight

    @contextlib.contextmanager
    def active(self):
        delta_weight = self.get_delta_weight()
        module = self.module()
        parametrize.register_parametrization(module, self.name, ParameterProxy(delta_weight))
        module.parametrizations[self.name].original.requires_grad_(False)
        try:
            with parametrize.cached():
                yield
        finally:
            parametrize.remove_parametrizations(module, self.name, leave_parametrized=False)

    def forward(self, *args):
        with self.active():
            result = self.base_layer(*args)
        return result


def lora_parameters(layer, *parameters):
    """The wrappers of several parameters of a module, one around another."""
    for name, kwargs in parameters:
        layer = LoraParameter(layer, name, **kwargs)
    return layer
