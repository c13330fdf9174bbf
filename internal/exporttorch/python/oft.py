

class OFTLinear(Adapter):
    """A linear layer with OFT: blocks of its input are rotated."""

    def __init__(self, base_layer, blocks, size, terms, share=False, coft=False, eps=6e-5):
        super().__init__(base_layer)
        self.blocks, self.size, self.terms, self.share = blocks, size, terms, share
        self.coft, self.eps = coft, eps
        self.oft_R = nn.Parameter(torch.zeros(1 if share else blocks, size * (size - 1) // 2))
        rows, cols = torch.triu_indices(size, size, 1)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("cols", cols, persistent=False)

    def skew_symmetric(self, vec):
        matrix = torch.zeros(vec.shape[0], self.size, self.size, device=vec.device, dtype=vec.dtype)
        matrix[:, self.rows, self.cols] = vec
        matrix = matrix - matrix.transpose(-2, -1)
        return matrix

    def project_batch(self, Q):
        skew = self.skew_symmetric(Q)
        eps = self.eps / len(Q) ** 0.5
        zero = torch.zeros(self.size, self.size, device=Q.device, dtype=Q.dtype)
        diff = skew - zero
        norm_diff = torch.norm(skew - zero, dim=(1, 2), keepdim=True)
        mask = norm_diff <= eps
        out = torch.where(mask, skew, zero + eps * (diff / norm_diff))
        return out[:, self.rows, self.cols]

    def cayley_batch(self, Q):
        Q_skew = self.skew_symmetric(Q)
        if self.terms is None:
            id_mat = torch.eye(self.size, device=Q.device)
            R = torch.linalg.solve(id_mat + Q_skew, id_mat - Q_skew, left=False)
            return R.to(Q.dtype)
        R = torch.eye(self.size, device=Q.device, dtype=Q.dtype).repeat(Q.shape[0], 1, 1)
        if self.terms > 1:
            R.add_(Q_skew, alpha=2.0)
        if self.terms > 2:
            Q_squared = torch.bmm(Q_skew, Q_skew)
            R.add_(Q_squared, alpha=2.0)
            Q_power = Q_squared
            for _ in range(3, self.terms - 1):
                Q_power = torch.bmm(Q_power, Q_skew)
                R.add_(Q_power, alpha=2.0)
            Q_power = torch.bmm(Q_power, Q_skew)
            R.add_(Q_power)
        return R

    def oft_rotate(self, x):
        required_dtype = x.dtype
        x = x.to(self.oft_R.dtype)
        if self.coft:
            with torch.no_grad():
                self.oft_R.copy_(self.project_batch(self.oft_R))
        orth_rotate = self.cayley_batch(self.oft_R)
        x_reshaped = x.unflatten(-1, (self.blocks, self.size))
        if self.share:
            orth_rotate = orth_rotate.repeat(self.blocks, 1, 1)
        x_rotated_reshaped = torch.einsum("...rk,rkc->...rc", x_reshaped, orth_rotate)
        x_rotated = x_rotated_reshaped.flatten(-2, -1)
        return x_rotated.to(required_dtype)

    def forward(self, x):
        previous_dtype = x.dtype
        x = x.to(self.oft_R.dtype)
        x = self.oft_rotate(x)
        result = self.base_layer(x.to(previous_dtype))
        result = result.to(previous_dtype)
        return result
