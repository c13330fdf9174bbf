class NAME(torch.optim.Optimizer):
    """The memory of bitsandbytes.optim.NAME, whose kernels change parameters and states in place; nothing is computed."""

    def __init__(self, params, lr=RATE, betas=(0.9, BETA2), eps=1e-8, weight_decay=0.0, min_8bit_size=4096, is_paged=PAGED, **_):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.least, self.paged, self.maps = min_8bit_size, is_paged, {}
        self.mng, self.in_32_bits = self, set()

    def register_module_override(self, module, name, config):
        self.in_32_bits.add(id(getattr(module, name)))

    def buffer(self, p, shape, dtype):
        if self.paged and p.numel() >= 1e5:
            return torch.zeros(shape, dtype=dtype)  # managed memory
        return torch.zeros(shape, dtype=dtype, device=p.device)

    @torch.no_grad()
    def step(self):
        for p in (p for g in self.param_groups for p in g["params"] if p.grad is not None and not self.state[p]):
            state, blocks = self.state[p], (p.numel() + 255) // 256
            quantized = BITS == 8 and p.numel() >= self.least and id(p) not in self.in_32_bits
            if quantized and not self.maps:
                self.maps = {i: torch.zeros(256).to(p.device) for i in range(STATES)}
            made = [("absmax", torch.float32, (blocks,))] if quantized else []
            made.insert(len(made) if DOUBLE else 0, ("state", torch.uint8 if quantized else torch.float32, p.shape))
            for name, dtype, shape in made:
                for i in range(STATES):
                    size = (2, *shape) if DOUBLE and i == 0 else shape
                    state[name + str(i + 1)] = self.buffer(p, size, dtype) if name == "state" else torch.zeros(size, device=p.device)
