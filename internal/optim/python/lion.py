class Lion(torch.optim.Optimizer):
    """What lion_pytorch.Lion does, one parameter at a time."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, decoupled_weight_decay=False):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.decay_scale = 1 / lr if decoupled_weight_decay else 1.0

    @staticmethod
    def update(p, moment, lr, betas, decay):
        p.data.mul_(1 - lr * decay)
        sign = moment.clone().mul_(betas[0]).add(p.grad, alpha=1 - betas[0]).sign_()
        p.add_(sign, alpha=-lr)
        moment.mul_(betas[1]).add_(p.grad, alpha=1 - betas[1])

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                self.update(p, state["exp_avg"], group["lr"], group["betas"], group["weight_decay"] * self.decay_scale)
