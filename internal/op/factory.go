package op

import "github.com/memplan/memplan/internal/tensor"

// FillArgs say what a tensor made from nothing looks like.
type FillArgs struct {
	Size  []int64       `arg:"size"`
	DType *tensor.DType `arg:"dtype"`
}

func filled(name string) *Row {
	return define(Row{Name: name, Sig: "torch." + name + "(*size: ints, *, dtype: dtype? = None)", Args: &FillArgs{}, Run: func(c *Call) {
		c.filledOf(c.Args.(*FillArgs), tensor.Float32)
	}})
}

// filledOf returns a tensor of the given size, of type d unless the arguments say
// another.
func (c *Call) filledOf(a *FillArgs, d tensor.DType) {
	if a.DType != nil {
		d = *a.DType
	}
	if len(a.Size) > tensor.MaxRank {
		c.Fail("%d dimensions; at most %d are handled", len(a.Size), tensor.MaxRank)
	}
	for _, n := range a.Size {
		if n < 0 {
			c.Fail("negative size %d", n)
		}
	}
	c.Return(c.NewShape(d, a.Size...))
}

func filledLike(name string) *Row {
	return define(Row{Name: name, Sig: "torch." + name + "(input, *, dtype: dtype? = None)", Args: &FillArgs{}, Run: func(c *Call) {
		x, d := c.In[0], c.In[0].DType
		if a := c.Args.(*FillArgs); a.DType != nil {
			d = *a.DType
		}
		c.Return(c.New(x.LikeDense(), d))
	}})
}

// zerosForQuery is torch.zeros_like(mask, dtype=query.dtype).
var _ = define(Row{Name: "zeros_like.query", Run: func(c *Call) {
	mask, query := c.In[0], c.In[1]
	c.Return(c.New(mask.LikeDense(), query.DType))
}})

// Tensors from nothing.
var (
	_ = filled("zeros")
	_ = filled("ones")
	_ = filled("randn")
	_ = filled("rand")
	_ = filledLike("zeros_like")
	_ = filledLike("ones_like")
	_ = filledLike("randn_like")
)

// FullArgs are the arguments of full.
type FullArgs struct {
	FillArgs
	Value float64 `arg:"fill_value"`
}

// Full is a tensor of one number, of float32 unless a type is given.
var _ = define(Row{
	Name: "full", Sig: "torch.full(size: ints, fill_value: float, *, dtype: dtype? = None)", Args: &FullArgs{}, Run: func(c *Call) {
		a := c.Args.(*FullArgs)
		c.Return(c.Do1(Row0("zeros"), &a.FillArgs))
	},
	Composite: true,
})

// ArangeArgs are the bounds of arange.
type ArangeArgs struct {
	Start int64         `arg:"start"`
	End   int64         `arg:"end"`
	DType *tensor.DType `arg:"dtype"`
}

// Arange counts from start to end, in int64 unless a type is given.
var _ = define(Row{
	Name: "arange", Sig: "torch.arange(end: int, *, start: int = 0, dtype: dtype? = None)", Args: &ArangeArgs{}, Run: func(c *Call) {
		a := c.Args.(*ArangeArgs)
		d := tensor.Int64
		if a.DType != nil {
			d = *a.DType
		}
		if a.End < a.Start {
			c.Fail("arange from %d to %d counts down", a.Start, a.End)
		}
		c.Return(c.NewShape(d, a.End-a.Start))
	},
})

// DiagonalArgs is the diagonal of tril and triu.
type DiagonalArgs struct {
	Diagonal int64 `arg:"diagonal"`
}

// The triangles of a matrix.
var (
	_ = define(Row{
		Name: "tril", Sig: "torch.tril(input, diagonal: int = 0)", Args: &DiagonalArgs{}, Run: triangle, Node: "TrilBackward0", Grad: gradTriangle,
	})
	_ = define(Row{
		Name: "triu", Sig: "torch.triu(input, diagonal: int = 0)", Args: &DiagonalArgs{}, Run: triangle, Node: "TriuBackward0", Grad: gradTriangle,
	})
)

// triangle makes a row-major result whatever the input's order.
func triangle(c *Call) { c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType)) }

func gradTriangle(b *Back) {
	b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.Grads[0].DType))
}
