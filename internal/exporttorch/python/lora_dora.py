

class DoraMagnitude(nn.Module):
    """The norms of a weight, which are trained."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)


class DoraLinear(LoraLinear):
    """A linear layer with DoRA, as PEFT's lora.Linear with use_dora."""

    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        self.transposed = not hasattr(base_layer, "in_features")

    def start(self):
        """Computes the magnitude, once the adapter is where the layer is."""
        lora_A, lora_B = self.lora_A.weight, self.lora_B.weight
        half = lora_A.dtype == torch.float16
        if half:
            lora_A, lora_B = lora_A.float(), lora_B.float()
        weight = self.base_weight()
        lora_weight = lora_B @ lora_A
        if half:
            lora_weight = lora_weight.half()
        self.lora_magnitude_vector = DoraMagnitude(self.weight_norm(weight, lora_weight))

    def base_weight(self):
        return self.base_layer.weight

    def weight_norm(self, weight, lora_weight):
        if self.transposed:
            weight = weight.T
        weight = weight + self.scaling * lora_weight
        norm = torch.linalg.norm(weight, dim=1).to(weight.dtype)
        return norm

    def lora_weight(self):
        x_eye = torch.eye(self.lora_A.weight.shape[1], device=self.lora_A.weight.device, dtype=self.lora_A.weight.dtype)
        lora_weight = self.lora_B(self.lora_A(x_eye)).T
        return lora_weight

    def dora(self, x, base_result):
        lora_weight = self.lora_weight()
        lora_weight = lora_weight.to(x.dtype)
        weight = self.base_weight().to(x.dtype)
        weight_norm = self.weight_norm(weight, lora_weight.detach())
        weight_norm = weight_norm.detach()
        mag_norm_scale = (self.lora_magnitude_vector.weight / weight_norm).view(1, -1)
        lora_result = self.lora_B(self.lora_A(x))
        if base_result is None:
            base_result = F.linear(x, weight.T if self.transposed else weight)
        elif self.base_layer.bias is not None:
            base_result = base_result - self.base_layer.bias
        result_dora = (mag_norm_scale - 1) * base_result + mag_norm_scale * lora_result * self.scaling
        return result_dora

    def add_dora(self, x, result):
        base_result = result
        if isinstance(self.lora_dropout, nn.Dropout) and self.training:
            x = self.lora_dropout(x)
            base_result = None
        result = result + self.dora(x, base_result)
        return result

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = x.to(self.lora_A.weight.dtype)
        result = self.add_dora(x, result)
        result = result.to(dtype)
        return result
