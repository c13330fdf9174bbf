

def int8_vectorwise_quant(a, threshold=0.0):
    return int8_rows(a, threshold)  # the operator behind it has a frame of its own


def int8_rows(a, threshold):
    row_stats = torch.empty(a.shape[0], dtype=torch.float32, device=a.device)
    out_row = torch.empty(a.shape, dtype=torch.int8, device=a.device)
    if threshold > 0.0:
        outliers = a.abs() >= threshold
        outliers.any()
        columns = torch.argwhere(outliers.any(dim=0)).view(-1)
        if a.shape[0] > 1:
            out_row[:, columns] = 0
    return out_row, row_stats


def int8_linear_matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.int32, device=a.device)
    if a.shape[1] % 4 != 0:
        result = torch.matmul(a.float(), b.float().t()).to(torch.int32)
        return out.copy_(result)
    return out


def int8_mm_dequant(a, dtype, bias):
    out = torch.empty_like(a, dtype=torch.float16)
    if bias is not None and bias.dtype != torch.float16:
        out.add_(bias)
    return out.to(dtype)


def int8_scaled_mm(a, b, bias, dtype):
    out_i32 = int8_linear_matmul(a, b)
    return int8_mm_dequant(out_i32, dtype, bias)


class MatMul8bitLt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, layer, bias):
        shape = A.shape
        if len(shape) == 3:
            A = A.reshape(-1, A.shape[-1])
        CA, SCA = int8_vectorwise_quant(A.to(torch.float16), threshold=layer.threshold)
        output = int8_scaled_mm(CA, layer.weight, bias, A.dtype)
        ctx.layer, ctx.shape = layer, shape
        ctx.dtype_bias = None if bias is None else bias.dtype
        if ctx.needs_input_grad[0]:
            ctx.A = A
        if len(shape) == 3:
            return output.reshape(*shape[:-1], layer.weight.shape[0])
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_A = grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=ctx.dtype_bias)
        if len(grad_output.shape) == 3:
            grad_output = grad_output.reshape(-1, grad_output.shape[-1]).contiguous()
        if ctx.needs_input_grad[0]:
            CB = ctx.layer.weight.to(ctx.A.dtype, copy=True).mul_(ctx.layer.SCB.unsqueeze(1).mul(1.0 / 127.0))
            grad_A = torch.matmul(grad_output.to(ctx.A.dtype), CB).view(ctx.shape)
        return grad_A, None, grad_bias


class Linear8bitLt(QuantizedLinear):
    bits = 8

    def __init__(self, layer, threshold):
        super().__init__(layer)
        self.threshold = threshold

    def load(self, fn):
        w = self.weight.data if self.weight.shape == (self.out_features, self.in_features) else self.weight.data.t()
        B = fn(w.contiguous().to(torch.float16))
        CB, self.SCB = int8_vectorwise_quant(B)
        self.weight = nn.Parameter(CB, requires_grad=False)

    def read(self, stored=False):
        self.loaded = True
        if stored:
            CB = torch.empty(self.out_features, self.in_features, dtype=torch.int8, device=device)
            self.SCB = torch.empty(self.out_features, device=device)
        else:
            value = self.weight.data.to(device)
            w = value.t() if self.transposed else value
            B = w.to("cpu").contiguous().to(device=device, dtype=torch.float16)
            CB, self.SCB = int8_vectorwise_quant(B)
        self.weight = nn.Parameter(CB, requires_grad=False)

    def forward(self, x):
        if self.bias is not None and self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        return MatMul8bitLt.apply(x, self, self.bias)
