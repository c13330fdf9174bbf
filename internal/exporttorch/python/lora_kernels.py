

def dequantized(layer, transposed=False):
    """The weight of a layer, as Axolotl's fused kernels have it."""
    weight = layer.base_layer.weight
    if not hasattr(layer.base_layer, "state"):
        return weight.t() if transposed else weight
    state = layer.base_layer.state
    if "nested" not in state:
        out = dequantize_4bit(weight, state)
        return out.t() if transposed else out
    out = torch.empty(state["shape"], dtype=state["dtype"], device=weight.device)
    absmax = torch.empty(state["absmax"].numel(), dtype=torch.float32, device=weight.device)
    absmax += state["offset"]
    return out.t() if transposed else out


def add_product(X, W, bias, A, B, scaling, X_drop=None):
    dtype, shape = X.dtype, X.shape
    if X.dim() == 3:
        X = X.view(-1, X.shape[-1])
        if X_drop is not None:
            X_drop = X_drop.view(-1, X_drop.shape[-1])
    out = torch.matmul(X, W)
    del W
    first, second = A.t().to(dtype), B.t().to(dtype)
    out.addmm_((X if X_drop is None else X_drop) @ first, second, alpha=scaling)
    if bias is not None:
        out += bias
    return out.view(*shape[:-1], -1)


def forward_product(X, layer, A, B, X_drop=None):
    return add_product(X, dequantized(layer, transposed=True), layer.base_layer.bias, A, B, layer.scaling, X_drop)


def adapter_gradients(grad, X, A, B, scaling):
    grad_B = grad @ B
    d_A, d_B = torch.empty_like(A.t()), None
    d_B = torch.empty_like(B.t())
    d_A.addmm_(X.t(), grad_B, alpha=scaling, beta=0)
    d_B.addmm_(A @ X.t(), grad, alpha=scaling, beta=0)
    return d_A, d_B, grad_B


class LoRA_MLP(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, X, X_drop, layers, gate_A, gate_B, up_A, up_B, down_A, down_B):
        gate = forward_product(X, layers[0], gate_A, gate_B, X_drop)
        up = forward_product(X, layers[1], up_A, up_B, X_drop)
        hidden = torch.empty_like(gate)  # a Triton kernel writes into it
        output = forward_product(hidden, layers[2], down_A, down_B)
        ctx.save_for_backward(X, X if X_drop is None else X_drop, gate, up, *[w.to(X.dtype) for w in (gate_A, gate_B, up_A, up_B, down_A, down_B)])
        ctx.layers, ctx.dropped = layers, X_drop is not None
        return output

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        X, X_lora, gate, up, gate_A, gate_B, up_A, up_B, down_A, down_B = ctx.saved_tensors
        d_down_A = d_down_B = d_up_A = d_up_B = d_gate_A = d_gate_B = grad_B_up = grad_B_gate = grad_B_down = dX = dX_drop = None
        shape = X.shape
        layers = ctx.layers
        grad_output = grad_output.view(-1, grad_output.shape[-1])
        X = X.view(-1, shape[-1])
        X_lora = X_lora.view(-1, shape[-1])
        gate = gate.view(-1, gate.shape[-1])
        up = up.view(-1, up.shape[-1])
        hidden = add_product(grad_output, dequantized(layers[2]), None, down_B.t(), down_A.t(), layers[2].scaling)
        # a Triton kernel writes what hidden was, and the gradients of gate and up, over them
        d_down_A, d_down_B, grad_B_down = adapter_gradients(grad_output, hidden, down_A, down_B, layers[2].scaling)
        d_up_A, d_up_B, grad_B_up = adapter_gradients(up, X_lora, up_A, up_B, layers[1].scaling)
        d_gate_A, d_gate_B, grad_B_gate = adapter_gradients(gate, X_lora, gate_A, gate_B, layers[0].scaling)
        if ctx.needs_input_grad[0]:
            weight = dequantized(layers[1], transposed=True)
            dX = torch.matmul(up, weight.t())
            del weight
            weight = dequantized(layers[0])
            dX.addmm_(gate, weight)
            del weight
            to = dX
            if ctx.dropped:
                to = dX_drop = torch.zeros_like(X_lora)
            to.addmm_(grad_B_up, up_A, alpha=layers[1].scaling)
            to.addmm_(grad_B_gate, gate_A, alpha=layers[0].scaling)
            del to
            dX = dX.view(shape)
            dX_drop = dX_drop.view(shape) if ctx.dropped else None
        return dX, dX_drop, None, d_gate_A.t(), d_gate_B.t(), d_up_A.t(), d_up_B.t(), d_down_A.t(), d_down_B.t()


class LoRA_QKV(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, X, X_drop, layers, *weights):
        Q = forward_product(X, layers[0], *weights[:2], X_drop)
        K = forward_product(X, layers[1], *weights[2:4], X_drop)
        V = forward_product(X, layers[2], *weights[4:], X_drop)
        ctx.save_for_backward(X, X if X_drop is None else X_drop, *[w.to(X.dtype) for w in weights])
        ctx.layers, ctx.dropped = layers, X_drop is not None
        return Q, K, V

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, q_grad, k_grad, v_grad):
        X, X_lora, A_q, B_q, A_k, B_k, A_v, B_v = ctx.saved_tensors
        d_A_q = d_B_q = d_A_k = d_B_k = d_A_v = d_B_v = grad_B_q = grad_B_k = grad_B_v = None
        q, k, v = ctx.layers
        shape = X.shape
        q_grad = q_grad.view(-1, q_grad.shape[-1])
        k_grad = k_grad.reshape(-1, k_grad.shape[-1])
        v_grad = v_grad.view(-1, v_grad.shape[-1])
        X = X.view(-1, shape[-1])
        X_lora = X_lora.view(-1, shape[-1])
        d_A_q, d_B_q, grad_B_q = adapter_gradients(q_grad, X_lora, A_q, B_q, q.scaling)
        d_A_k, d_B_k, grad_B_k = adapter_gradients(k_grad, X_lora, A_k, B_k, k.scaling)
        d_A_v, d_B_v, grad_B_v = adapter_gradients(v_grad, X_lora, A_v, B_v, v.scaling)
        weight = dequantized(q)
        grad_X = torch.mm(q_grad, weight)
        del weight
        weight = dequantized(k)
        grad_X.addmm_(k_grad, weight)
        del weight
        weight = dequantized(v)
        grad_X.addmm_(v_grad, weight)
        del weight
        to = grad_X_drop = torch.zeros_like(X_lora) if ctx.dropped else grad_X
        to.addmm_(grad_B_q, A_q, alpha=q.scaling)
        to.addmm_(grad_B_k, A_k, alpha=k.scaling)
        to.addmm_(grad_B_v, A_v, alpha=v.scaling)
        del to
        grad_X = grad_X.view(shape)
        grad_X_drop = grad_X_drop.view(shape) if ctx.dropped else None
        return grad_X, grad_X_drop, None, d_A_q.t(), d_B_q.t(), d_A_k.t(), d_B_k.t(), d_A_v.t(), d_B_v.t()


class LoRA_O(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, X, X_drop, layer, A, B):
        XW = forward_product(X, layer, A, B, X_drop)
        ctx.save_for_backward(A.to(X.dtype), B.to(X.dtype), X, X if X_drop is None else X_drop)
        ctx.layer, ctx.dropped = layer, X_drop is not None
        return XW

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, dY):
        A, B, X, X_lora = ctx.saved_tensors
        shape, layer = X.shape, ctx.layer
        dY = dY.reshape(-1, dY.shape[-1])
        X = X.reshape(-1, shape[-1])
        X_lora = X_lora.reshape(-1, shape[-1])
        d_A, d_B, grad_B = adapter_gradients(dY, X_lora, A, B, layer.scaling)
        weight = dequantized(layer, transposed=True)
        dX = dY @ weight.t()
        del weight
        dX_drop = None
        if ctx.dropped:
            dX_drop = (grad_B @ A * layer.scaling).view(shape)
        else:
            dX.addmm_(grad_B, A, alpha=layer.scaling)
        return dX.view(shape), dX_drop, None, d_A.t(), d_B.t()


def dropped(layer, X):
    """The input after the dropout of an adapter, which layers share; None without one."""
    return layer.lora_dropout(X) if layer.training and isinstance(layer.lora_dropout, nn.Dropout) else None


def weights(*layers):
    return [w for layer in layers for w in (layer.lora_A.weight, layer.lora_B.weight)]


def apply_lora_mlp(self, X):
    layers = self.gate_proj, self.up_proj, self.down_proj
    return LoRA_MLP.apply(X, dropped(self.gate_proj, X), layers, *weights(*layers))


def apply_lora_qkv(self, X):
    layers = self.q_proj, self.k_proj, self.v_proj
    Q, K, V = LoRA_QKV.apply(X, dropped(self.q_proj, X), layers, *weights(*layers))
    return Q, K, V


def apply_lora_o(self, X):
    return LoRA_O.apply(X, dropped(self.o_proj, X), self.o_proj, *weights(self.o_proj))


def original_apply_qkv(self, hidden_states):
    q_proj = self.q_proj(hidden_states)
    k_proj = self.k_proj(hidden_states)
    v_proj = self.v_proj(hidden_states)
    return q_proj, k_proj, v_proj


def original_apply_o(self, hidden_states):
    return self.o_proj(hidden_states)


def fuse_adapters(model, kernels):
    """Lets functions compute layers and their adapters at once, as Axolotl's fused kernels of LoRA."""
    def adapted(module, *names):
        return all(isinstance(getattr(module, name), LoraLayer) for name in names)

    for path, module in model.named_modules():
        found = re.fullmatch(r"(?:model\.|language_model\.|model\.language_model\.)?layers\.\d+\.(self_attn|mlp)", path)
        if not found:
            continue
        if found[1] == "mlp":
            names = "gate_proj", "up_proj", "down_proj"
            if "mlp" in kernels and all(hasattr(module, name) for name in names) and adapted(module, *names):
                module.forward = types.MethodType(apply_lora_mlp, module)
        elif hasattr(module, "q_proj") and ("qkv" in kernels or "o" in kernels):
            qkv = "qkv" in kernels and adapted(module, "q_proj", "k_proj", "v_proj")
            module.apply_qkv = types.MethodType(apply_lora_qkv if qkv else original_apply_qkv, module)
            o = "o" in kernels and adapted(module, "o_proj")
            module.apply_o = types.MethodType(apply_lora_o if o else original_apply_o, module)
