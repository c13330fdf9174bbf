

class LoraEmbedding(LoraLayer):
    def __init__(self, base_layer, r, alpha, dropout, rslora=False):
        super().__init__(base_layer, r, alpha, dropout, rslora)
        self.lora_embedding_A = nn.Parameter(torch.zeros(r, base_layer.num_embeddings))
        self.lora_embedding_B = nn.Parameter(torch.zeros(base_layer.embedding_dim, r))

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        embedding_A = self.lora_embedding_A.T
        embedding_B = self.lora_embedding_B.T
        after_A = F.embedding(x, embedding_A, self.base_layer.padding_idx)
        result = result + (after_A @ embedding_B) * self.scaling
        result = result.to(dtype)
        return result
