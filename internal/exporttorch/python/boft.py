

class BOFTLinear(Adapter):
    """A linear layer with BOFT, without its CUDA extension: all of its input is rotated, and its output scaled."""

    def __init__(self, base_layer, blocks, size, dropout=0.0):
        super().__init__(base_layer)
        n_in, n_out = features(base_layer)
        self.dropout = dropout
        self.boft_R = nn.Parameter(torch.zeros(1, blocks, size, size))
        self.boft_s = nn.Parameter(torch.ones(n_out, 1))
        self.register_buffer("boft_P", torch.eye(n_in).unsqueeze(0), persistent=False)

    def cayley_batch(self, data):
        skew_mat = 0.5 * (data - data.transpose(1, 2))
        id_mat = torch.eye(data.shape[-1], device=data.device)
        Q = torch.linalg.solve(id_mat + skew_mat, id_mat - skew_mat, left=False)
        return Q.to(data.dtype)

    def boft_dropout(self, x):
        if not self.training:
            return x
        n = len(x)
        replaced = int(self.dropout * n)
        mask = torch.cat([torch.ones(replaced, device=x.device), torch.zeros(n - replaced, device=x.device)])
        mask = mask[torch.randperm(n)].view(n, 1, 1)
        full_mask = torch.zeros(n, 1, 1, device=x.device)
        full_mask[:] = mask
        eye_matrix = torch.eye(x.shape[-1], device=x.device).repeat(n, 1, 1)
        x = (1 - full_mask) * x + full_mask * eye_matrix
        return x

    def forward(self, x):
        previous_dtype = x.dtype
        boft_rotation = torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)
        boft_scale = torch.ones(len(self.boft_s), 1, device=x.device, dtype=x.dtype)
        orth_rotate = self.cayley_batch(self.boft_R.flatten(0, 1))
        if self.dropout:
            orth_rotate = self.boft_dropout(orth_rotate)
        block_diagonal = torch.block_diag(*torch.unbind(orth_rotate)).unsqueeze(0)
        boft_P = self.boft_P.to(x.dtype)
        block_diagonal = block_diagonal.to(x.dtype)
        mat_batch = torch.bmm(block_diagonal, boft_P.transpose(1, 2))
        mat_batch = torch.bmm(boft_P, mat_batch)
        mat = mat_batch[0]
        boft_rotation = mat @ boft_rotation
        boft_scale = self.boft_s * boft_scale
        boft_rotation = boft_rotation.to(previous_dtype)
        x_rotated = x @ boft_rotation
        result = self.base_layer(x_rotated)
        bias = self.base_layer.bias
        if bias is not None:
            result = result - bias
        result = result * boft_scale.squeeze(-1)
        if bias is not None:
            result = result + bias
        result = result.to(previous_dtype)
        return result
