

class LoraLinear4bit(LoraLinear):
    def forward(self, x):
        result = self.base_layer(x)
        result = result.clone()
        requires_conversion = not torch.is_autocast_enabled()
        if requires_conversion:
            expected_dtype = result.dtype
            x = x.to(self.lora_A.weight.dtype)
        output = self.lora_B(self.lora_A(self.lora_dropout(x))) * self.scaling
        if requires_conversion:
            output = output.to(expected_dtype)
        result = result + output
        return result
