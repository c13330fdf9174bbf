package layers

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

var Embedding = define(module.Layer{
	Sig: "nn.Embedding(num_embeddings: int, embedding_dim: int, padding_idx: int? = None, max_norm: float? = None, norm_type: float = 2.0, " +
		"scale_grad_by_freq: bool = False, sparse: bool = False)",
	Is:    nn.Layer{Table: true, Init: nn.Unit},
	Alone: indices,
	Build: func(b *module.Builder) {
		w := embeddingTable(b)
		b.Finish(b.Do(aten.EmbeddingFunction, op.BindArgs(&aten.EmbeddingArgs{}, b.Args), b.In(0), w))
	},
})

var EmbeddingBag = define(module.Layer{
	Sig: "nn.EmbeddingBag(num_embeddings: int, embedding_dim: int, max_norm: float? = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, " +
		"mode: str(mean|sum|max) = 'mean', sparse: bool = False, *, include_last_offset: bool = False, padding_idx: int? = None)",
	Inputs: "input * offsets? per_sample_weights?",
	Is:     nn.Layer{Init: nn.Unit},
	Alone:  indices,
	Build: func(b *module.Builder) {
		w := embeddingTable(b)
		b.Finish(b.Do(aten.EmbeddingBag, op.BindArgs(&aten.EmbeddingBagArgs{}, b.Args), b.In(0), w, b.In(1), b.In(2)))
	},
})

var Bilinear = define(module.Layer{
	Sig:    "nn.Bilinear(in1_features: infer int, in2_features: infer int, out_features: int, bias: bool = True)",
	Inputs: "input1 input2",
	Is:     nn.Layer{Init: nn.Bilinear},
	Alone: func(b *module.Builder) []*op.Tensor {
		return b.Alone([]int64{1, b.Size("in1_features")}, []int64{1, b.Size("in2_features")})
	},
	Build: func(b *module.Builder) {
		other := b.Ins[1].Meta.Tensor
		if other.Rank() == 0 {
			b.Fail("", "the second input needs at least one dimension")
		}
		n1, n2, out := b.Infer("in1_features", b.Tensor(1).Dim(-1)), b.Infer("in2_features", other.Dim(-1)), b.Positive("out_features")
		w := b.Param("weight", out, n1, n2)
		var bias value.Value
		if b.Bool("bias") {
			bias = b.Param("bias", out)
		}
		b.Finish(b.Do(aten.Bilinear, nil, b.In(0), b.In(1), w, bias))
	},
})

// indices are what a table is made for that nothing calls.
func indices(*module.Builder) []*op.Tensor {
	return []*op.Tensor{{Layout: tensor.Contiguous(tensor.D(1, 1)), DType: tensor.Int64}}
}

// embeddingTable registers the parameter of an embedding and checks padding_idx.
func embeddingTable(b *module.Builder) value.Value {
	n := b.Positive("num_embeddings")
	i := b.Int("padding_idx")
	if b.Has("padding_idx") && (i < -n || i >= n) {
		b.Fail("padding_idx", "padding_idx %d is not within %d embeddings", i, n)
	}
	w := b.Param("weight", n, b.Positive("embedding_dim"))
	if b.Has("padding_idx") {
		if i < 0 {
			i += n
		}
		b.Class.Params[0].Blank = &i
	}
	return w
}
