package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// FillArgs say what a tensor made from nothing looks like.
type FillArgs struct {
	Size  []int64       `arg:"size"`
	DType *tensor.DType `arg:"dtype"`
}

func filled(name string, eval *op.Eval) *op.Op {
	return define(op.Op{Name: name, Eval: eval, Sig: "torch." + name + "(*size: ints, *, dtype: dtype? = None)", Args: &FillArgs{}, Run: func(c *op.Call) {
		filledOf(c, c.Args.(*FillArgs), tensor.Float32)
	}})
}

// filledOf returns a tensor of the given size, of type d unless the arguments say
// another.
func filledOf(c *op.Call, a *FillArgs, d tensor.DType) {
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

func filledLike(name string, eval *op.Eval) *op.Op {
	return define(op.Op{Name: name, Eval: eval, Sig: "torch." + name + "(input, *, dtype: dtype? = None)", Args: &FillArgs{}, Run: func(c *op.Call) {
		x, d := c.In[0], c.In[0].DType
		if a := c.Args.(*FillArgs); a.DType != nil {
			d = *a.DType
		}
		c.Return(c.New(x.LikeDense(), d))
	}})
}

// ZerosLikeQuery is torch.zeros_like(mask, dtype=query.dtype).
var ZerosLikeQuery = define(op.Op{Name: "zeros_like.query", Eval: op.Constant(0), Run: func(c *op.Call) {
	mask, query := c.In[0], c.In[1]
	c.Return(c.New(mask.LikeDense(), query.DType))
}})

// Tensors from nothing.
var (
	Zeros     = filled("zeros", op.Constant(0))
	Ones      = filled("ones", op.Constant(1))
	Randn     = filled("randn", drawn((*kernel.Stream).Normal))
	Rand      = filled("rand", evalRand)
	ZerosLike = filledLike("zeros_like", op.Constant(0))
	OnesLike  = filledLike("ones_like", op.Constant(1))
	RandnLike = filledLike("randn_like", drawn((*kernel.Stream).Normal))
)

// FullArgs are the arguments of full.
type FullArgs struct {
	FillArgs
	Value float64 `arg:"fill_value"`
}

// Full is a tensor of one number, of float32 unless a type is given.
var Full = define(op.Op{
	Name: "full", Eval: evalFull, Sig: "torch.full(size: ints, fill_value: float, *, dtype: dtype? = None)", Args: &FullArgs{}, Run: func(c *op.Call) {
		filledOf(c, &c.Args.(*FullArgs).FillArgs, tensor.Float32)
	},
})

// More of them, some like others.
var (
	Empty     = filled("empty", op.Constant(0))
	EmptyLike = filledLike("empty_like", op.Constant(0))
	RandLike  = filledLike("rand_like", evalRand)
	FullLike  = define(op.Op{
		Name: "full_like", Eval: evalFull, Sig: "torch.full_like(input, fill_value: float, *, dtype: dtype? = None)", Args: &FullArgs{}, Run: func(c *op.Call) {
			x, d := c.In[0], c.In[0].DType
			if a := c.Args.(*FullArgs); a.DType != nil {
				d = *a.DType
			}
			c.Return(c.New(x.LikeDense(), d))
		},
	})
	Randint = define(op.Op{
		Name: "randint", Eval: evalRandint, Sig: "torch.randint(low: int, high: int, size: ints, *, dtype: dtype? = None)", Args: &RandintArgs{}, Run: func(c *op.Call) {
			filledOf(c, &c.Args.(*RandintArgs).FillArgs, tensor.Int64)
		},
	})
	Eye = define(op.Op{
		Name: "eye", Sig: "torch.eye(n: int, m: int? = None, *, dtype: dtype? = None)", Args: &EyeArgs{}, Run: func(c *op.Call) {
			a := c.Args.(*EyeArgs)
			m := a.N
			if a.M != nil {
				m = *a.M
			}
			filledOf(c, &FillArgs{Size: []int64{a.N, m}, DType: a.DType}, tensor.Float32)
			c.Filled(c.Out[0].DType)
		},
		Eval: evalEye,
	})
)

// evalEye has ones on the diagonal, among zeros.
var evalEye = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	y := c.Out[0]
	if err := m.Apply(kernel.Fill, y, nil, 0); err != nil {
		return err
	}
	diagonal := tensor.Layout{Size: tensor.D(min(y.Dim(0), y.Dim(1))), Stride: tensor.D(y.Stride.At(0) + y.Stride.At(1)), Offset: y.Offset}
	return m.Launch(kernel.Fill, []kernel.Tensor{m.At(y, diagonal)}, nil, 1)
}}

// EyeLike is torch.eye of the size of a square matrix into torch.empty_like of it.
var EyeLike = define(op.Op{
	Name: "eye.like", Run: func(c *op.Call) { c.Return(c.New(c.In[0].LikeDense(), c.In[0].DType)) },
	Eval:   evalEye,
	Source: "aten/src/ATen/native/cuda/TensorFactories.cu: eye_out_cuda",
})

// RandintArgs are the bounds of randint, the upper one not among the numbers.
type RandintArgs struct {
	FillArgs
	Low  int64 `arg:"low"`
	High int64 `arg:"high"`
}

// EyeArgs are the sizes of eye.
type EyeArgs struct {
	N     int64         `arg:"n"`
	M     *int64        `arg:"m"`
	DType *tensor.DType `arg:"dtype"`
}

// The tensors that a method makes, of the type of its own unless another is
// given.
var (
	NewEmpty = newTensor("new_empty", "", op.Constant(0))
	NewZeros = newTensor("new_zeros", "", op.Constant(0))
	NewOnes  = newTensor("new_ones", "", op.Constant(1))
	NewFull  = newTensor("new_full", " fill_value: float,", evalFull)
)

func newTensor(name, value string, eval *op.Eval) *op.Op {
	return define(op.Op{Name: name, Sig: "Tensor." + name + "(self, size: ints," + value + " *, dtype: dtype? = None)", Args: &FullArgs{}, Eval: eval, Run: func(c *op.Call) {
		filledOf(c, &c.Args.(*FullArgs).FillArgs, c.In[0].DType)
	}})
}

var evalFull = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	return m.Apply(kernel.Fill, c.Out[0], nil, c.Args.(*FullArgs).Value)
}}

var evalRandint = random(func(a op.Arrays, s *kernel.Stream, c *op.Call) {
	args, y := c.Args.(*RandintArgs), c.Out[0]
	a.Put(y, array.Each(int(y.Numel()), func(int) float64 { return float64(args.Low + s.Below(args.High-args.Low)) }))
})
