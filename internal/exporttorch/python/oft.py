

class OFTLinear(Adapter):
    """A linear layer with OFT: blocks of its input are rotated."""

    def __init__(self, base_layer, blocks, size, terms, share=False):
        super().__init__(base_layer)
        self.blocks, self.size, self.terms, self.share = blocks, size, terms, share
        self.oft_R = nn.Parameter(torch.zeros(1 if share else blocks, size * (size - 1) // 2))
        rows, cols = torch.triu_indices(size, size, 1)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("cols", cols, persistent=False)

    def skew_symmetric(self, vec):
        matrix = torch.zeros(vec.shape[0], self.size, self.size, device=vec.device, dtype=vec.dtype)
        matrix[:, self.rows, self.cols] = vec
        matrix = matrix - matrix.transpose(-2, -1)
        return matrix

    def cayley_batch(self, Q):
        Q_skew = self.skew_symmetric(Q)
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
