class NAME(torch.optim.Optimizer):
    """The memory of bitsandbytes.optim.NAME, whose kernels change parameters and states in place; nothing is computed."""

    def __init__(self, params, lr=RATE, betas=(0.9, BETA2), eps=1e-8, weight_decay=0.0, min_8bit_size=4096, is_paged=PAGED, **_):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.least, self.paged, self.maps = min_8bit_size, is_paged, {}

    def buffer(self, p, dtype):
        if self.paged and p.numel() >= 1e5:
            return torch.zeros(p.shape, dtype=dtype)  # managed memory
        return torch.zeros_like(p, dtype=dtype)

    @torch.no_grad()
    def step(self):
        for p in (p for g in self.param_groups for p in g["params"] if p.grad is not None and not self.state[p]):
            state = self.state[p]
            quantized = BITS == 8 and p.numel() >= self.least
            if quantized and not self.maps:
                self.maps = {i: torch.zeros(256).to(p.device) for i in range(STATES)}
            for i in range(STATES):
                state["state%d" % (i + 1)] = self.buffer(p, torch.uint8 if quantized else torch.float32)
            for i in range(STATES if quantized else 0):
                state["absmax%d" % (i + 1)] = torch.zeros((p.numel() + 255) // 256, device=p.device)
