package graph

import "github.com/memplan/memplan/internal/op"

func init() {
	layer(Layer{
		Sig: "nn.EmbeddingBag(num_embeddings: int, embedding_dim: int, *, mode: str(mean|sum|max) = 'mean')",
		Build: func(b *builder) {
			w := b.param("weight", b.positive("num_embeddings"), b.positive("embedding_dim"))
			b.finish([]val{b.do("embedding_bag", &op.EmbeddingBagArgs{Mode: b.str("mode")}, b.in(0), w)})
		},
	})
	layer(Layer{
		Sig:    "nn.Bilinear(in1_features: infer int, in2_features: infer int, out_features: int, bias: bool = True)",
		Inputs: "input1 input2",
		Build: func(b *builder) {
			other := b.ins[1].m.t
			if other.Rank() == 0 {
				b.fail("", "the second input needs at least one dimension")
			}
			n1, n2, out := b.infer("in1_features", b.x(1).Dim(-1)), b.infer("in2_features", other.Dim(-1)), b.positive("out_features")
			w := b.param("weight", out, n1, n2)
			var bias val
			if b.bool("bias") {
				bias = b.param("bias", out)
			}
			b.finish([]val{b.do("bilinear", nil, b.in(0), b.in(1), w, bias)})
		},
	})
}
