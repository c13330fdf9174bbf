

maxima_table = {}


def quantize_blockwise(a, blocksize=256):
    if not maxima_table:
        maxima_table["dynamic"] = torch.zeros(256).to(a.device)
    absmax = torch.empty(-(a.numel() // -blocksize), dtype=torch.float32, device=a.device)
    out = torch.empty_like(a, dtype=torch.uint8)
    return out, absmax, maxima_table["dynamic"].to(a.device, copy=True)


def quantize_4bit(a, double_quant, storage=torch.uint8):
    absmax = torch.empty(-(a.numel() // -64), dtype=torch.float32, device=a.device)
    out = torch.empty((a.numel() + 1) // (2 * storage.itemsize), 1, dtype=storage, device=a.device)
    code = torch.tensor([0.0] * 16, device=a.device)
    code.div_(code.abs().max())
    state = {"absmax": absmax, "code": code, "shape": a.shape, "dtype": a.dtype}
    if double_quant:
        offset = absmax.mean()
        state["absmax"], nested, table = quantize_blockwise(absmax - offset)
        del absmax
        state.update(offset=offset, nested=nested, table=table)
    return out, state


def dequantize_4bit(a, state):
    absmax = state["absmax"]
    if "nested" in state:
        absmax = torch.empty_like(absmax, dtype=torch.float32)
        absmax += state["offset"]
    out = torch.empty(state["shape"], dtype=state["dtype"], device=a.device)
    if a.shape[0] == 1:
        return out.t()
    return out


class MatMul4Bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B, bias, state, keeps):
        output = F.linear(A, dequantize_4bit(B, state).to(A.dtype).t(), bias)
        ctx.state = state
        ctx.B = B
        ctx.dtype_bias = None if bias is None else bias.dtype
        if keeps and ctx.needs_input_grad[0]:
            ctx.A = A
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_A = grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=ctx.dtype_bias)
        if ctx.needs_input_grad[0]:
            grad_A = torch.matmul(grad_output, dequantize_4bit(ctx.B, ctx.state).to(grad_output.dtype).t())
        return grad_A, None, grad_bias, None, None


class Linear4bit(QuantizedLinear):
    bits = 4

    def __init__(self, layer, compute_dtype, double_quant, storage=torch.uint8, half=False, keeps=False):
        super().__init__(layer)
        self.compute_dtype, self.double_quant, self.storage = compute_dtype, double_quant, storage
        self.half_first, self.keeps = half, keeps

    def load(self, fn):
        w = self.weight.data if self.weight.shape == (self.out_features, self.in_features) else self.weight.data.t()
        w = fn(w.contiguous().half() if self.half_first else w.contiguous())
        w_4bit, self.state = quantize_4bit(w, self.double_quant, self.storage)
        self.weight = nn.Parameter(w_4bit, requires_grad=False)

    def read(self, stored=False):
        self.loaded = True
        if stored:
            n = self.weight.numel()
            w_4bit = torch.empty((n + 1) // (2 * self.storage.itemsize), 1, dtype=self.storage, device=device)
            absmax = torch.empty(-(n // -64), dtype=torch.uint8 if self.double_quant else torch.float32, device=device)
            shape = (self.out_features, self.in_features)
            self.state = {"absmax": absmax, "code": torch.empty(16, device=device), "shape": shape, "dtype": self.weight.dtype}
            if self.double_quant:
                self.state["offset"] = torch.empty((), device=device)
                self.state["nested"] = torch.empty(-(absmax.numel() // -256), device=device)
                self.state["table"] = torch.empty(256, device=device)
        else:
            value = self.weight.data.to(device)
            w = value.t() if self.transposed else value
            w_4bit, self.state = quantize_4bit(w.contiguous(), self.double_quant, self.storage)
        self.weight = nn.Parameter(w_4bit, requires_grad=False)

    def forward(self, x):
        if self.bias is not None and self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        inp_dtype = x.dtype
        x = x.to(self.compute_dtype)
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        return MatMul4Bit.apply(x, self.weight.t(), bias, self.state, self.keeps).to(inp_dtype)
