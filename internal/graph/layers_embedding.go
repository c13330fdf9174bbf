package graph

import (
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

var Embedding = layer(Layer{
	Sig: "nn.Embedding(num_embeddings: int, embedding_dim: int, padding_idx: int? = None, max_norm: float? = None, norm_type: float = 2.0, " +
		"scale_grad_by_freq: bool = False, sparse: bool = False)",
	Is: nn.Layer{Table: true, Init: nn.Unit},
	Build: func(b *builder) {
		w := b.table()
		b.finish([]val{b.do(op.EmbeddingFunction, op.BindArgs(&op.EmbeddingArgs{}, b.args), b.in(0), w)})
	},
})

var EmbeddingBag = layer(Layer{
	Sig: "nn.EmbeddingBag(num_embeddings: int, embedding_dim: int, max_norm: float? = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, " +
		"mode: str(mean|sum|max) = 'mean', sparse: bool = False, include_last_offset: bool = False, padding_idx: int? = None)",
	Inputs: "input * offsets? per_sample_weights?",
	Is:     nn.Layer{Init: nn.Unit},
	Build: func(b *builder) {
		w := b.table()
		b.finish([]val{b.do(op.EmbeddingBag, op.BindArgs(&op.EmbeddingBagArgs{}, b.args), b.in(0), w, b.in(1), b.in(2))})
	},
})

var Bilinear = layer(Layer{
	Sig:    "nn.Bilinear(in1_features: infer int, in2_features: infer int, out_features: int, bias: bool = True)",
	Inputs: "input1 input2",
	Is:     nn.Layer{Init: nn.Bilinear},
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
		b.finish([]val{b.do(op.Bilinear, nil, b.in(0), b.in(1), w, bias)})
	},
})

// table registers the parameter of an embedding and checks padding_idx.
func (b *builder) table() val {
	n := b.positive("num_embeddings")
	i := b.int("padding_idx")
	if b.has("padding_idx") && (i < -n || i >= n) {
		b.fail("padding_idx", "padding_idx %d is not within %d embeddings", i, n)
	}
	w := b.param("weight", n, b.positive("embedding_dim"))
	if b.has("padding_idx") {
		if i < 0 {
			i += n
		}
		b.class.Params[0].Blank = &i
	}
	return w
}
