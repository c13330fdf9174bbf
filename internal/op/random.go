package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Random numbers on the device.
var (
	Empty     = filled("empty", constant(0))
	EmptyLike = filledLike("empty_like", constant(0))
	RandLike  = filledLike("rand_like", drawn((*kernel.Stream).Uniform))
	FullLike  = define(Op{
		Name: "full_like", Eval: evalFull, Sig: "torch.full_like(input, fill_value: float, *, dtype: dtype? = None)", Args: &FullArgs{}, Run: func(c *Call) {
			x, d := c.In[0], c.In[0].DType
			if a := c.Args.(*FullArgs); a.DType != nil {
				d = *a.DType
			}
			c.Return(c.New(x.LikeDense(), d))
		},
	})
	Randint = define(Op{
		Name: "randint", Eval: evalRandint, Sig: "torch.randint(low: int, high: int, size: ints, *, dtype: dtype? = None)", Args: &RandintArgs{}, Run: func(c *Call) {
			c.filledOf(&c.Args.(*RandintArgs).FillArgs, tensor.Int64)
		},
	})
	Bernoulli = define(Op{
		Name: "bernoulli", Eval: evalBernoulli, Sig: "torch.bernoulli(input)", Run: func(c *Call) {
			if !c.In[0].DType.IsFloating() {
				c.Fail("bernoulli needs probabilities of a floating type, not %v", c.In[0].DType)
			}
			x := c.In[0]
			c.Return(c.New(tensor.Contiguous(x.Size), x.DType))
			if x.DType.Size() < 4 && !c.Env().FakeTensors { // the kernel takes probabilities of float32
				c.Drop(c.New(x.LikeDense(), tensor.Float32))
			}
		},
		Node: "BernoulliBackward0", Grad: func(b *Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Source: "aten/src/ATen/native/Distributions.cpp: bernoulli",
	})
	Eye = define(Op{
		Name: "eye", Sig: "torch.eye(n: int, m: int? = None, *, dtype: dtype? = None)", Args: &EyeArgs{}, Run: func(c *Call) {
			a := c.Args.(*EyeArgs)
			m := a.N
			if a.M != nil {
				m = *a.M
			}
			c.filledOf(&FillArgs{Size: []int64{a.N, m}, DType: a.DType}, tensor.Float32)
			c.filled(c.Out[0].DType)
		},
		Eval: aside(func(a Arrays, c *Call) {
			a.Put(c.Out[0], array.Eye(int(c.Out[0].Dim(0)), int(c.Out[0].Dim(1))))
		}, nil),
	})
	Linspace = define(Op{
		Name: "linspace", Sig: "torch.linspace(start: float, end: float, steps: int, *, dtype: dtype? = None)", Args: &LinspaceArgs{}, Run: func(c *Call) {
			a := c.Args.(*LinspaceArgs)
			c.filledOf(&FillArgs{Size: []int64{a.Steps}, DType: a.DType}, tensor.Float32)
		},
		Eval: aside(func(a Arrays, c *Call) {
			l := c.Args.(*LinspaceArgs)
			a.Put(c.Out[0], array.Linspace(l.Start, l.End, int(l.Steps)))
		}, nil),
	})
)

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

// LinspaceArgs are the arguments of linspace.
type LinspaceArgs struct {
	Start float64       `arg:"start"`
	End   float64       `arg:"end"`
	Steps int64         `arg:"steps"`
	DType *tensor.DType `arg:"dtype"`
}

// The tensors that a method makes, of the type of its own unless another is
// given.
var (
	NewEmpty = newTensor("new_empty", "", constant(0))
	NewZeros = newTensor("new_zeros", "", constant(0))
	NewOnes  = newTensor("new_ones", "", constant(1))
	NewFull  = newTensor("new_full", " fill_value: float,", evalFull)
)

func newTensor(name, value string, eval *Eval) *Op {
	return define(Op{Name: name, Sig: "Tensor." + name + "(self, size: ints," + value + " *, dtype: dtype? = None)", Args: &FullArgs{}, Eval: eval, Run: func(c *Call) {
		c.filledOf(&c.Args.(*FullArgs).FillArgs, c.In[0].DType)
	}})
}

// RandpermArgs are the arguments of randperm.
type RandpermArgs struct {
	N     int64         `arg:"n"`
	DType *tensor.DType `arg:"dtype"`
}

// Randperm sorts random keys; for few numbers one thread block does.
var Randperm = define(Op{
	Name: "randperm", Eval: evalRandperm, Sig: "torch.randperm(n: int, *, dtype: dtype? = None)", Args: &RandpermArgs{}, Run: func(c *Call) {
		a := c.Args.(*RandpermArgs)
		d := tensor.Int64
		if a.DType != nil {
			d = *a.DType
		}
		const most = 2048
		if a.N < 1 || a.N > most || d != tensor.Int64 && d != tensor.Int32 {
			c.Fail("randperm of %d numbers of %v is not modelled; it is of 1 to %d of int64 or int32", a.N, d, most)
		}
		c.Return(c.NewShape(d, a.N))
		c.Drop(c.NewShape(d)) // whether the numbers fit the type
		if c.Env().FakeTensors {
			return
		}
		c.Local(c.grown(d, a.N)) // arange
		c.Local(c.NewShape(tensor.Int32, a.N))
		c.Local(c.NewShape(tensor.Int32, a.N)) // the keys, and sorted
		c.Drop(c.NewShape(tensor.Uint8, 1))
	},
	Source: "aten/src/ATen/native/cuda/Randperm.cu",
})

// MultinomialArgs are the arguments of multinomial.
type MultinomialArgs struct {
	N           int64 `arg:"num_samples"`
	Replacement bool  `arg:"replacement"`
}

// Multinomial draws from weights: with replacement by running sums, else it
// divides the weights by random numbers and takes the largest.
var Multinomial = define(Op{
	Name: "multinomial", Eval: evalMultinomial, Sig: "torch.multinomial(input, num_samples: int, replacement: bool = False)", Args: &MultinomialArgs{}, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*MultinomialArgs)
		if x.Rank() != 1 && x.Rank() != 2 || x.DType != tensor.Float32 || x.Numel() == 0 || a.N < 1 || !a.Replacement && a.N > x.Dim(-1) {
			c.Fail("multinomial of %d samples from shape %v of %v is not modelled; weights are of float32, and one or two dimensions", a.N, x.Size, x.DType)
		}
		size := x.Size.Set(x.Rank()-1, a.N)
		c.Return(c.grown(tensor.Int64, size.Slice()...))
		if a.Replacement && a.N > 1 {
			if x.Rank() == 1 {
				c.Fail("multinomial with replacement from one row of weights is not modelled; unsqueeze it")
			}
			for range 3 { // the weights in rows, normalized, and their running sums
				c.Local(c.New(tensor.Contiguous(x.Size), x.DType))
			}
			return
		}
		c.validWeights(x)
		noise := c.Local(c.NewLike(x))
		if a.N > 1 {
			if multiBlock(x.Numel()/x.Dim(-1), x.Dim(-1)) {
				c.Fail("multinomial among %d weights in %d rows is not modelled", x.Dim(-1), x.Numel()/x.Dim(-1))
			}
			c.Drop(c.New(tensor.Contiguous(size), x.DType)) // the values of topk
			return
		}
		dims := make([]bool, x.Rank())
		dims[x.Rank()-1] = true
		reduceScratch(c, noise, dims, valueIndex, 4)
	},
	Source: "aten/src/ATen/native/Distributions.cpp: multinomial_out; cuda/MultinomialKernel.cu",
})

// validWeights checks on the device that weights are finite, not negative, and
// not all 0; what it finds lives to the end of the row.
func (c *Call) validWeights(x *Tensor) {
	within := func(extreme, compare *Op, bound float64) (value, is *Tensor) {
		value = c.Do1(extreme, nil, x)
		return value, c.Do1(compare, &BinaryArgs{Other: Number{Set: true, Float: true, Value: bound}}, value)
	}
	least, some := within(Min.All, GreaterEqual, 0)
	most, finite := within(Max.All, Less, math.Inf(1))
	c.Local(c.NewShape(tensor.Bool))
	c.Drop(finite, most, some, least)
	sums := c.Do1(Sum, &ReduceArgs{Dim: []int64{-1}}, x)
	none := c.Do1(Equal, &BinaryArgs{Other: Number{Set: true}}, sums)
	c.Local(c.Do1(Any, &ReduceArgs{}, none))
	c.Drop(none, sums)
	c.Drop(c.NewShape(tensor.Bool)) // its opposite
}
