package aten

import (
	"strings"

	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// UniqueConsecutive leaves out repetitions. The result keeps the storage of
// the input's size; here it has that shape, too.
var UniqueConsecutive = define(op.Op{
	Name: "unique_consecutive", Sig: "torch.unique_consecutive(input)", Run: func(c *op.Call) {
		x := c.In[0]
		if x.Rank() != 1 || x.DType != tensor.Int64 {
			c.Fail("unique_consecutive of %v of shape %v is not modelled", x.DType, x.Size)
		}
		c.Return(c.New(tensor.Contiguous(x.Size), x.DType))
		if n := x.Numel(); n > 0 {
			count := c.NewShape(tensor.Int64)
			c.Drop(c.NewShape(tensor.Uint8, cub.Unique(c.Env().Arch, 8, n)))
			c.Drop(count)
		}
	},
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		x := a.Get(c.In[0])
		for i := 1; i < len(x); i++ {
			if x[i] == x[i-1] {
				a.Fail(&op.Refusal{What: "unique_consecutive of elements that repeat, whose result is smaller than what was planned,"})
				return
			}
		}
		a.Put(c.Out[0], x)
	}, nil),
	NotModelled: "how many elements differ is the data's; memplan takes all of them",
	Source:      "aten/src/ATen/native/cuda/UniqueCub.cu, Unique.cu: unique_consecutive_cuda_template",
})

// dependsOnData defines an operator whose result's size depends on the data: it
// is known, and refused.
func dependsOnData(sig string) *op.Op {
	name, _, _ := strings.Cut(strings.TrimPrefix(sig, "torch."), "(")
	return define(op.Op{Name: name, Sig: sig, Refused: true, Run: func(c *op.Call) {
		c.Fail("not modelled: the size of the result depends on the data")
	}})
}

// The operators that are refused.
var (
	MaskedSelect = dependsOnData("torch.masked_select(input, mask)")
	Nonzero      = dependsOnData("torch.nonzero(input)")
	Argwhere     = dependsOnData("torch.argwhere(input)")
	Unique       = dependsOnData("torch.unique(input)")
	Bincount     = dependsOnData("torch.bincount(input)")
)
