

class SVDLinear4bit(SVDLinear):
    def forward(self, x):
        result = self.base_layer(x)
        result = result.clone()
        ranknum = self.ranknum + 1e-5
        requires_conversion = not torch.is_autocast_enabled()
        if requires_conversion:
            expected_dtype = result.dtype
            x = x.to(self.lora_A.dtype)
        output = self.lora_dropout(x) @ (self.lora_A * self.lora_E).T @ self.lora_B.T
        if requires_conversion:
            output = output.to(expected_dtype)
        output = output * self.scaling / ranknum
        result += output
        return result
