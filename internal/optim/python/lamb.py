class Lamb(torch.optim.Optimizer):
    """What timm.optim.Lamb does, one parameter at a time."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, grad_averaging=True,
                 max_grad_norm=1.0, trust_clip=False, always_adapt=False, caution=False, decoupled_decay=False):
        super().__init__(params, {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay, "averaging": grad_averaging,
            "trust_clip": trust_clip, "always_adapt": always_adapt, "caution": caution, "decoupled_decay": decoupled_decay, "step": 0,
        })
        self.bound = max_grad_norm

    def clip(self):
        if self.bound is None:
            return None
        norms = [torch.linalg.vector_norm(p.grad) for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        return (norm / self.bound).clamp_(min=1.0)

    @torch.no_grad()
    def step(self):
        clip = self.clip()
        for g in self.param_groups:
            g["step"] += 1
            beta1, beta2 = g["betas"]
            bias1, bias2 = (1 - beta1 ** g["step"], 1 - beta2 ** g["step"]) if g["bias_correction"] else (1.0, 1.0)
            for p in g["params"]:
                if p.grad is None:
                    continue
                if clip is not None:
                    p.grad.div_(clip)
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1 if g["averaging"] else 1.0)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                denom = (state["exp_avg_sq"].sqrt() / bias2 ** 0.5).add_(g["eps"])
                update = (state["exp_avg"] / bias1).div_(denom)
                if g["caution"]:
                    mask = (update * p.grad > 0).to(p.grad.dtype)
                    mask.div_(mask.mean().clamp_(min=1e-3))
                    update.mul_(mask)
                decay = g["weight_decay"]
                if decay != 0 and g["decoupled_decay"]:
                    p.add_(p, alpha=-g["lr"] * decay)
                elif decay != 0:
                    update.add_(p, alpha=decay)
                if decay != 0 or g["always_adapt"]:
                    p_norm = p.norm(2.0)
                    update_norm = update.norm(2.0)
                    ratio = p_norm / update_norm
                    ratio = torch.where(p_norm > 0, torch.where(update_norm > 0, ratio, 1.0), 1.0)
                    if g["trust_clip"]:
                        ratio = torch.clamp(ratio, max=1.0)
                    update.mul_(ratio)
                p.add_(update, alpha=-g["lr"])
