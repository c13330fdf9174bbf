package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Exponential fills a tensor with random numbers of the exponential distribution.
var Exponential = define(op.Op{Name: "exponential_", Eval: evalExponential, Run: func(*op.Call) {}, InPlace: true, Source: "aten/src/ATen/native/Distributions.cpp: exponential_"})

// UniformArgs are the bounds of a distribution.
type UniformArgs struct {
	From float64 `arg:"from"`
	To   float64 `arg:"to"`
}

// Uniform fills a tensor with random numbers between two bounds.
var Uniform = define(op.Op{
	Name: "uniform_", Eval: evalUniform, Sig: "Tensor.uniform_(self, from: float = 0.0, to: float = 1.0)", Args: &UniformArgs{}, Takes: op.Floats,
	Run: checkInPlace, InPlace: true, Source: "aten/src/ATen/native/Distributions.cpp: uniform_",
})

// BernoulliArgs is a probability.
type BernoulliArgs struct {
	P float64
}

// BernoulliNumber is noise.bernoulli_(p).
var BernoulliNumber = define(op.Op{
	Name: "bernoulli_.float", Eval: evalBernoulliNumber, Args: &BernoulliArgs{}, Run: func(*op.Call) {}, InPlace: true, Source: "aten/src/ATen/native/Distributions.cpp: bernoulli_",
})

// Bernoulli draws 0 or 1 with probabilities.
var Bernoulli = define(op.Op{
	Name: "bernoulli", Eval: evalBernoulli, Sig: "torch.bernoulli(input)", Run: func(c *op.Call) {
		if !c.In[0].DType.IsFloating() {
			c.Fail("bernoulli needs probabilities of a floating type, not %v", c.In[0].DType)
		}
		x := c.In[0]
		c.Return(c.New(tensor.Contiguous(x.Size), x.DType))
		if x.DType.Size() < 4 && !c.Env().NoKernels() { // the kernel takes probabilities of float32
			c.Drop(c.New(x.LikeDense(), tensor.Float32))
		}
	},
	Node: "BernoulliBackward0", Grad: func(b *op.Back) { b.Set(0, b.NewLike(b.Grads[0])) },
	Source: "aten/src/ATen/native/Distributions.cpp: bernoulli",
})

// RandpermArgs are the arguments of randperm.
type RandpermArgs struct {
	N     int64         `arg:"n"`
	DType *tensor.DType `arg:"dtype"`
}

// Randperm sorts random keys; for few numbers one thread block does.
var Randperm = define(op.Op{
	Name: "randperm", Eval: evalRandperm, Sig: "torch.randperm(n: int, *, dtype: dtype? = None)", Args: &RandpermArgs{}, Run: func(c *op.Call) {
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
		if c.Env().NoKernels() {
			return
		}
		c.Local(c.Grown(d, a.N)) // arange
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
var Multinomial = define(op.Op{
	Name: "multinomial", Eval: evalMultinomial, Sig: "torch.multinomial(input, num_samples: int, replacement: bool = False)", Args: &MultinomialArgs{}, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*MultinomialArgs)
		if x.Rank() != 1 && x.Rank() != 2 || x.DType != tensor.Float32 || x.Numel() == 0 || a.N < 1 || !a.Replacement && a.N > x.Dim(-1) {
			c.Fail("multinomial of %d samples from shape %v of %v is not modelled; weights are of float32, and one or two dimensions", a.N, x.Size, x.DType)
		}
		size := x.Size.Set(x.Rank()-1, a.N)
		c.Return(c.Grown(tensor.Int64, size.Slice()...))
		if a.Replacement && a.N > 1 {
			if x.Rank() == 1 {
				c.Fail("multinomial with replacement from one row of weights is not modelled; unsqueeze it")
			}
			for range 3 { // the weights in rows, normalized, and their running sums
				c.Local(c.New(tensor.Contiguous(x.Size), x.DType))
			}
			return
		}
		validWeights(c, x)
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
func validWeights(c *op.Call, x *op.Tensor) {
	within := func(extreme, compare *op.Op, bound float64) (value, is *op.Tensor) {
		value = c.Do1(extreme, nil, x)
		return value, c.Do1(compare, &BinaryArgs{Other: op.Number{Set: true, Float: true, Value: bound}}, value)
	}
	least, some := within(Min.All, GreaterEqual, 0)
	most, finite := within(Max.All, Less, math.Inf(1))
	c.Local(c.NewShape(tensor.Bool))
	c.Drop(finite, most, some, least)
	sums := c.Do1(Sum, &ReduceArgs{Dim: []int64{-1}}, x)
	none := c.Do1(Equal, &BinaryArgs{Other: op.Number{Set: true}}, sums)
	c.Local(c.Do1(Any, &ReduceArgs{}, none))
	c.Drop(none, sums)
	c.Drop(c.NewShape(tensor.Bool)) // its opposite
}

// Random numbers come from the machine: they cannot be PyTorch's.

// random is an operator without a derivative that computes with a stream of random
// numbers.
func random(f func(a op.Arrays, s *kernel.Stream, c *op.Call)) *op.Eval {
	return &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
		return m.OnHost(func(a op.Arrays) { f(a, kernel.NewStream(uint64(m.Draw())), c) })
	}}
}

// drawn fills the result with numbers of a stream.
func drawn(next func(s *kernel.Stream) float64) *op.Eval {
	return random(func(a op.Arrays, s *kernel.Stream, c *op.Call) {
		y := c.Target()
		a.Put(y, array.Each(int(y.Numel()), func(int) float64 { return next(s) }))
	})
}

// filledBy fills the result by a kernel of random numbers.
func filledBy(k *kernel.Kernel, numbers op.Numbers) *op.Eval {
	return &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
		return m.Launch(k, []kernel.Tensor{op.As(m, c.Target())}, []int64{m.Draw()}, numbers(c.Args)...)
	}}
}

var (
	evalExponential = drawn(func(s *kernel.Stream) float64 { return -math.Log(s.Uniform()) })
	evalUniform     = filledBy(kernel.RandomUniform, func(args any) []float64 { return []float64{args.(*UniformArgs).From, args.(*UniformArgs).To} })
	evalRand        = filledBy(kernel.RandomUniform, func(any) []float64 { return []float64{0, 1} })
	evalRandperm    = random(func(a op.Arrays, s *kernel.Stream, c *op.Call) {
		a.Put(c.Out[0], array.Permutation(int(c.Args.(*RandpermArgs).N), s.Uniform))
	})
	evalBernoulliNumber = filledBy(kernel.RandomBernoulli, func(args any) []float64 { return []float64{args.(*BernoulliArgs).P} })
	evalBernoulli       = random(func(a op.Arrays, s *kernel.Stream, c *op.Call) {
		p := a.Get(c.In[0])
		a.Put(c.Out[0], array.Each(len(p), func(i int) float64 { return array.Truth(s.Uniform() < p[i]) }))
	}).WithBackward(func(a op.Arrays, b *op.Back) {
		if r := a.Wanted(b, 0); r != nil {
			a.Put(r, make([]float64, r.Numel()))
		}
	})
	evalMultinomial = random(func(a op.Arrays, s *kernel.Stream, c *op.Call) {
		args, x := c.Args.(*MultinomialArgs), a.Array(c.In[0])
		var out []float64
		array.Blocks(x.V, x.Size[len(x.Size)-1], func(_ int, weights []float64) {
			picked, err := array.Multinomial(weights, int(args.N), args.Replacement, s.Uniform)
			if err != nil {
				a.Fail(&op.Refusal{What: err.Error()})
			}
			out = append(out, picked...)
		})
		a.Put(c.Out[0], out)
	})
)
