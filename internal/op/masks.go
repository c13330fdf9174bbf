package op

import (
	"math"

	"github.com/memplan/memplan/internal/tensor"
)

// SquareMaskArgs are the arguments of generate_square_subsequent_mask.
type SquareMaskArgs struct {
	Size  int64         `arg:"sz"`
	DType *tensor.DType `arg:"dtype"`
}

// CausalMask is the row of generate_square_subsequent_mask: -inf above the
// diagonal, else 0.
var CausalMask = define(Op{
	Name: "generate_square_subsequent_mask", Sig: "nn.Transformer.generate_square_subsequent_mask(sz: int, *, dtype: dtype? = None)", Args: &SquareMaskArgs{},
	Composite: true, Run: func(c *Call) {
		a := c.Args.(*SquareMaskArgs)
		d := tensor.Float32
		if a.DType != nil {
			d = *a.DType
		}
		if a.Size < 0 {
			c.Fail("negative size %d", a.Size)
		}
		c.Return(c.squareMask(a.Size, d))
	},
	Source: "torch/nn/modules/transformer.py: _generate_square_subsequent_mask",
})

// squareMask is torch.triu(torch.full((n, n), -inf), diagonal=1).
func (c *Call) squareMask(n int64, d tensor.DType) *Tensor {
	full := c.Do1(Full, &FullArgs{FillArgs: FillArgs{Size: []int64{n, n}, DType: &d}, Value: math.Inf(-1)})
	defer c.Drop(full)
	return c.Do1(Triu, &DiagonalArgs{Diagonal: 1}, full)
}

// CausalMaskArgs is the length of the sequence that a mask is for.
type CausalMaskArgs struct {
	Size int64
}

// Without a hint the stacks of transformer layers compare their mask with the
// causal one, and wait for the GPU to know.
var (
	DetectCausalMaskKnown = define(Op{
		Name: "_detect_is_causal_mask.known", Args: &CausalMaskArgs{}, Composite: true, Run: detectCausalMask,
		Source: "torch/nn/modules/transformer.py: _detect_is_causal_mask",
	})
	DetectCausalMask = define(Op{
		Name: "_detect_is_causal_mask", Args: &CausalMaskArgs{}, Composite: true, Run: detectCausalMask,
		NotModelled: "whether the mask of a transformer is causal, which depends on its values: one that generate_square_subsequent_mask made is, others " +
			"are taken not to be (is_causal says so)",
		Source: "torch/nn/modules/transformer.py: _detect_is_causal_mask",
	})
)

func detectCausalMask(c *Call) {
	mask := c.In[0]
	causal := c.squareMask(c.Args.(*CausalMaskArgs).Size, mask.DType)
	if mask.Size == causal.Size {
		same := c.Do1(Equal, &BinaryArgs{}, mask, causal)
		all := c.Do1(All, &ReduceArgs{}, same)
		c.Drop(same, all)
	}
	c.Drop(causal)
}

// What a TransformerEncoder does with padded sequences in eval mode: it looks
// whether they can be nested tensors.
var NestedFromMask = define(Op{
	Name: "_nested_tensor_from_mask_left_aligned", Eval: nothing, Run: func(c *Call) {
		if !c.Env().Training {
			c.Fail("TransformerEncoder in eval mode makes nested tensors of padded sequences, whose sizes depend on the data; they are not modelled (enable_nested_tensor: false)")
		}
	},
	Source: "torch/nn/modules/transformer.py: TransformerEncoder.forward",
})
