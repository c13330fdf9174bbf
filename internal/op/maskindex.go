package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/tensor"
)

// MaskIndexArgs says how many elements of the mask are true, which the data
// decides.
type MaskIndexArgs struct {
	Count int64 `arg:"count"`
}

// Index by a bool tensor for the first dimensions: x[mask]. The mask is turned
// into indices (nonzero), of which the host reads how many there are.
var IndexMask = define(Op{
	Name: "index.mask", Eval: linear(func(any) array.Linear { return array.Masked }, nil), Sig: "[] index_mask(self, mask, count: int)", Args: &MaskIndexArgs{}, Run: func(c *Call) {
		x, m, n := c.In[0], c.In[1], c.Args.(*MaskIndexArgs).Count
		k := m.Rank()
		if m.DType != tensor.Bool || k == 0 || k > x.Rank() {
			c.Fail("the mask must be a bool tensor of up to %d dimensions, not %v of shape %v", x.Rank(), m.DType, m.Size)
		}
		size := tensor.D(n)
		for i := range x.Rank() {
			if i < k && x.Dim(i) != m.Dim(i) {
				c.Fail("a mask of shape %v does not fit shape %v", m.Size, x.Size)
			}
			if i >= k {
				size = size.Append(x.Dim(i))
			}
		}
		if n < 0 || n > m.Numel() {
			c.Fail("%d elements of a mask of shape %v cannot be true", n, m.Size)
		}
		indices := c.nonzero(m, n)
		c.Return(c.New(tensor.Contiguous(size), x.DType))
		c.Drop(indices)
	},
	Save: []Save{In(1)}, Node: "IndexBackward0", Grad: gradMaskIndex,
	NotModelled: "how many elements a mask picks is the data's; memplan takes the number in the spec",
	Source:      "aten/src/ATen/native/IndexingUtils.h: expandTensors; cuda/Nonzero.cu",
})

// nonzero makes the indices of the n elements of a mask that are true.
func (c *Call) nonzero(m *Tensor, n int64) *Tensor {
	total := m.Numel()
	count := c.NewShape(tensor.Int32)
	c.Drop(c.NewShape(tensor.Uint8, cub.Sum(c.Env().SMs, total)))
	out := c.NewShape(tensor.Int64, n, int64(m.Rank()))
	if n > 0 {
		c.Drop(c.NewShape(tensor.Uint8, cub.Flagged(c.Env().Arch, total)))
	}
	c.Drop(count)
	return out
}

// gradMaskIndex adds the gradient to zeros by sorted indices, as gradIndex.
func gradMaskIndex(b *Back) {
	m, g, in, n := b.SavedIn(1), b.Grads[0], b.InM[0], b.Args.(*MaskIndexArgs).Count
	b.Set(0, b.NewShape(in.DType, in.Size.Slice()...))
	indices := b.nonzero(m, n)
	if n == 0 {
		b.Drop(indices)
		return
	}
	vec := func() *Tensor { return b.NewShape(tensor.Int64, n) }
	for i := range m.Rank() {
		wrapped, part := vec(), vec()
		b.Drop(wrapped)
		if i == 0 {
			b.Local(part) // linear index, to which the others are added
		} else {
			b.Drop(part)
		}
	}
	b.Drop(indices)
	b.putSorted(g, n, in.Numel(), in.Numel()/m.Numel())
}

// unique_consecutive leaves out repetitions. The result keeps the storage of
// the input's size; here it has that shape, too.
var UniqueConsecutive = define(Op{
	Name: "unique_consecutive", Sig: "torch.unique_consecutive(input)", Run: func(c *Call) {
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
	Eval: aside(func(a Arrays, c *Call) {
		x := a.Get(c.In[0])
		for i := 1; i < len(x); i++ {
			if x[i] == x[i-1] {
				a.Fail(&Refusal{What: "unique_consecutive of elements that repeat, whose result is smaller than what was planned,"})
				return
			}
		}
		a.Put(c.Out[0], x)
	}, nil),
	NotModelled: "how many elements differ is the data's; memplan takes all of them",
	Source:      "aten/src/ATen/native/cuda/UniqueCub.cu, Unique.cu: unique_consecutive_cuda_template",
})
