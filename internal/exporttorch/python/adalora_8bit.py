

class SVDLinear8bit(SVDLinear):
    def forward(self, x):
        result = self.base_layer(x)
        requires_conversion = not torch.is_autocast_enabled()
        if requires_conversion:
            expected_dtype = result.dtype
            x = x.float()
        ranknum = self.ranknum + 1e-5
        output = self.lora_dropout(x) @ (self.lora_A * self.lora_E).T @ self.lora_B.T
        if requires_conversion:
            output = output.to(expected_dtype)
        output = output * self.scaling / ranknum
        result = result + output
        return result
