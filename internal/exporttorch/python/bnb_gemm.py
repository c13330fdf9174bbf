

def gemm_4bit(A, state, bias, rows):
    out_features, in_features = state["shape"]
    if A.numel() <= rows * in_features:
        A = A.contiguous()
        return torch.empty(*A.shape[:-1], out_features, dtype=A.dtype, device=A.device)
    if "nested" in state:
        absmax_dq = torch.empty_like(state["absmax"], dtype=torch.float32)
        absmax = absmax_dq + state["offset"]
    weight = torch.empty(out_features, in_features, dtype=A.dtype, device=A.device)
    return F.linear(A, weight, bias)


class Gemm4Bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B, bias, state, rows):
        output = gemm_4bit(A, state, bias, rows)
        ctx.state = state
        ctx.B = B
        ctx.dtype_bias = None if bias is None else bias.dtype
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_A = grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=ctx.dtype_bias)
        if ctx.needs_input_grad[0]:
            grad_A = torch.matmul(grad_output, dequantize_4bit(ctx.B, ctx.state).to(grad_output.dtype))
        return grad_A, None, grad_bias, None, None


class Linear4bit(Linear4bit):
    """That of bitsandbytes 0.50; rows: up to how many a kernel reads the packed weight."""

    def __init__(self, layer, compute_dtype, double_quant, storage, rows):
        super().__init__(layer, compute_dtype, double_quant, storage)
        self.rows = rows[self.out_features, self.in_features]

    def forward(self, x):
        inp_dtype = x.dtype
        x = x.to(self.compute_dtype)
        bias = self.bias
        if bias is not None:
            if bias.dtype != x.dtype:
                bias.data = bias.data.to(x.dtype)
            bias = bias.to(self.compute_dtype)
        return Gemm4Bit.apply(x, self.weight, bias, self.state, self.rows).to(inp_dtype)
