package op

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// FillArgs say what a tensor made from nothing looks like.
type FillArgs struct {
	Size  []int64       `arg:"size"`
	DType *tensor.DType `arg:"dtype"`
}

func filled(name string, eval *Eval) *Op {
	return define(Op{Name: name, Eval: eval, Sig: "torch." + name + "(*size: ints, *, dtype: dtype? = None)", Args: &FillArgs{}, Run: func(c *Call) {
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

func filledLike(name string, eval *Eval) *Op {
	return define(Op{Name: name, Eval: eval, Sig: "torch." + name + "(input, *, dtype: dtype? = None)", Args: &FillArgs{}, Run: func(c *Call) {
		x, d := c.In[0], c.In[0].DType
		if a := c.Args.(*FillArgs); a.DType != nil {
			d = *a.DType
		}
		c.Return(c.New(x.LikeDense(), d))
	}})
}

// zerosForQuery is torch.zeros_like(mask, dtype=query.dtype).
var ZerosLikeQuery = define(Op{Name: "zeros_like.query", Eval: constant(0), Run: func(c *Call) {
	mask, query := c.In[0], c.In[1]
	c.Return(c.New(mask.LikeDense(), query.DType))
}})

// Tensors from nothing.
var (
	Zeros     = filled("zeros", constant(0))
	Ones      = filled("ones", constant(1))
	Randn     = filled("randn", drawn((*kernel.Stream).Normal))
	Rand      = filled("rand", drawn((*kernel.Stream).Uniform))
	ZerosLike = filledLike("zeros_like", constant(0))
	OnesLike  = filledLike("ones_like", constant(1))
	RandnLike = filledLike("randn_like", drawn((*kernel.Stream).Normal))
)

// FullArgs are the arguments of full.
type FullArgs struct {
	FillArgs
	Value float64 `arg:"fill_value"`
}

// Full is a tensor of one number, of float32 unless a type is given.
var Full = define(Op{
	Name: "full", Eval: evalFull, Sig: "torch.full(size: ints, fill_value: float, *, dtype: dtype? = None)", Args: &FullArgs{}, Run: func(c *Call) {
		c.filledOf(&c.Args.(*FullArgs).FillArgs, tensor.Float32)
	},
})

// ArangeArgs are the bounds of arange: Start alone is where it ends.
type ArangeArgs struct {
	Start Number        `arg:"start"`
	End   Number        `arg:"end"`
	Step  Number        `arg:"step"`
	DType *tensor.DType `arg:"dtype"`
}

// Range is where arange starts, its step, and how many elements it has; less than
// 0, or no number, where it has no end.
func (a *ArangeArgs) Range() (start, step, n float64) {
	start, step = a.Start.Value, 1
	end := a.End.Value
	if !a.End.Set {
		start, end = 0, start
	}
	if a.Step.Set {
		step = a.Step.Value
	}
	return start, step, math.Ceil((end - start) / step)
}

// Arange counts from start to end, in int64 unless a type is given or a bound is
// a floating-point number.
var Arange = define(Op{
	Name: "arange", Eval: evalArange, Sig: "torch.arange(start: number? = None, end: number? = None, step: number? = None, *, dtype: dtype? = None)", Args: &ArangeArgs{},
	Run: func(c *Call) {
		a := c.Args.(*ArangeArgs)
		d := tensor.Int64
		switch {
		case a.DType != nil:
			d = *a.DType
		case a.Start.Float || a.End.Float || a.Step.Float:
			d = tensor.Float32
		}
		start, step, n := a.Range()
		switch {
		case !a.Start.Set && !a.End.Set:
			c.Fail("arange needs end")
		case a.Step.Set && (!a.Start.Set || !a.End.Set):
			c.Fail("arange with step needs start and end")
		case !(n >= 0 && n <= maxSize):
			c.Fail("arange does not come from %v to its end by steps of %v", start, step)
		}
		c.Return(c.grown(d, int64(n)))
	},
	Below: func(c *Call) (int64, bool) {
		start, step, n := c.Args.(*ArangeArgs).Range()
		return int64(max(start, start+(n-1)*step)) + 1, n > 0 && !c.Out[0].DType.IsFloating()
	},
	Source: "aten/src/ATen/native/cuda/RangeFactories.cu: arange_cuda_out",
})

// DiagonalArgs is the diagonal of tril and triu.
type DiagonalArgs struct {
	Diagonal int64 `arg:"diagonal"`
}

// The triangles of a matrix.
var (
	Tril = define(Op{
		Name: "tril", Eval: evalTriangle(kernel.Tril), Sig: "torch.tril(input, diagonal: int = 0)", Args: &DiagonalArgs{}, Run: triangle, Node: "TrilBackward0", Grad: gradTriangle,
	})
	Triu = define(Op{
		Name: "triu", Eval: evalTriangle(kernel.Triu), Sig: "torch.triu(input, diagonal: int = 0)", Args: &DiagonalArgs{}, Run: triangle, Node: "TriuBackward0", Grad: gradTriangle,
	})
)

// triangle makes a row-major result whatever the input's order.
func triangle(c *Call) { c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType)) }

func gradTriangle(b *Back) {
	b.Set(0, b.New(tensor.Contiguous(b.Grads[0].Size), b.Grads[0].DType))
}
