

class SVDLinear(Adapter):
    """A linear layer with AdaLoRA: an adapter as a singular value decomposition."""

    def __init__(self, base_layer, r, alpha, dropout, rank=False):
        super().__init__(base_layer)
        self.scaling = alpha if alpha > 0 else float(r)
        self.lora_dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        n, m = features(base_layer)
        self.lora_A = nn.Parameter(torch.randn(r, n) * 0.02)
        self.lora_B = nn.Parameter(torch.randn(m, r) * 0.02)
        self.lora_E = nn.Parameter(torch.zeros(r, 1))
        ranknum = torch.full((1,), float(r))
        if rank:
            self.ranknum = nn.Parameter(ranknum)
        else:
            self.register_buffer("ranknum", ranknum)

    def forward(self, x):
        result = self.base_layer(x)
        ranknum = self.ranknum + 1e-5
        x = x.to(self.lora_A.dtype)
        result += (self.lora_dropout(x) @ (self.lora_A * self.lora_E).T @ self.lora_B.T) * self.scaling / ranknum
        return result


def regularize(model, weight):
    """Adds to the loss how far the matrices of the adapters are from orthogonal ones, as AdaLoraModel.forward."""
    forward = model.forward

    def regularized(*args):
        outputs = forward(*args)
        regu_loss = 0
        num_param = 0
        for name, p in model.named_parameters():
            if name.endswith((".lora_A", ".lora_B")):
                para_cov = p @ p.T if name.endswith("A") else p.T @ p
                I = torch.eye(*para_cov.size(), out=torch.empty_like(para_cov))
                num_param += 1
                regu_loss += torch.norm(para_cov - I, p="fro")
        regu_loss = regu_loss / num_param
        outputs[-1].add_(weight * regu_loss)
        return outputs

    model.forward = regularized
