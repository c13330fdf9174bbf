package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// LayerNormArgs are the arguments of layer_norm.
type LayerNormArgs struct {
	Shape []int64 `arg:"normalized_shape"`
	Eps   float64 `arg:"eps"`
}

// LayerNorm normalizes over the last dimensions. Mean and reciprocal standard
// deviation are kept in the accumulation type.
var LayerNorm = define(op.Op{
	Name: "layer_norm", Args: &LayerNormArgs{}, Cast: op.CastFP32, Composite: true,
	Sig: "F.layer_norm(input, normalized_shape: ints, weight: tensor? = None, bias: tensor? = None, eps: float = 1e-05)",
	Run: func(c *op.Call) {
		outs := c.Do(NativeLayerNorm, c.Args, c.In...)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2])
	},
})

// NativeLayerNorm is the kernel of layer_norm, which keeps mean and rstd.
var NativeLayerNorm = define(op.Op{
	Name: "native_layer_norm", Takes: op.FloatsOfOneType, Args: &LayerNormArgs{}, Eval: evalLayerNorm, Run: func(c *op.Call) {
		x, shape := c.In[0], c.Args.(*LayerNormArgs).Shape
		rows := normRows(c, x, shape)
		x = c.Contiguous(x)
		y := c.New(tensor.Contiguous(x.Size), x.DType)
		acc := x.DType.Accumulate()
		c.Return(y, c.NewShape(acc, rows), c.NewShape(acc, rows))
	},
	Save:   []op.Save{op.In(2), op.In(0), op.In(1), op.Out(1), op.Out(2)},
	NoGrad: []int{1, 2}, Node: "NativeLayerNormBackward0",
	Grad: func(b *op.Back) { // layer_norm_backward_cuda
		x, w, bias := b.SavedIn(0), b.SavedIn(1), b.SavedIn(2)
		b.Contiguous(x)
		if b.Need(0) {
			b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		}
		var dw, db *op.Tensor
		if b.Need(1) {
			dw = b.NewLike(w)
			b.Set(1, dw)
		}
		if b.Need(2) {
			db = b.NewLike(bias)
			b.Set(2, db)
		}
		b.Contiguous(b.Grads[0])
		layerNormPartials(b, x, normRows(&b.Call, x, b.Args.(*LayerNormArgs).Shape), dw != nil, db != nil)
	},
	Source: "aten/src/ATen/native/cuda/layer_norm_kernel.cu",
})

// normRows checks the normalized shape and returns the number of rows.
func normRows(c *op.Call, x *op.Tensor, shape []int64) int64 {
	k := x.Rank() - len(shape)
	n := int64(1)
	for i, s := range shape {
		if k < 0 || x.Dim(k+i) != s {
			c.Fail("normalized_shape %s does not match the last dimensions of shape %v", tensor.SizeString(shape), x.Size)
		}
		n *= s
	}
	return x.Numel() / max(n, 1)
}

// layerNormPartials allocates the partial sums with which the weight
// gradients of very many short rows are formed in two steps
// (LaunchGammaBetaBackwardCUDAKernel).
func layerNormPartials(b *op.Back, x *op.Tensor, rows int64, weight, bias bool) {
	if b.Env().FakeTensors || !b.Env().Torch.LayerNormPartialSums() || rows <= 64*1024 || !(weight || bias) {
		return
	}
	n := x.Numel() / rows
	const block, rowsPerBlock = 32, 32
	blocksX := tensor.DivUp(n, block)
	if blocksX >= int64(b.Env().SMs)/2 {
		return
	}
	parts := min(max(32768/blocksX, 1), tensor.DivUp(rows, rowsPerBlock))
	var ts []*op.Tensor
	if weight {
		ts = append(ts, b.NewShape(x.DType, parts, n))
	}
	if bias {
		ts = append(ts, b.NewShape(x.DType, parts, n))
	}
	for i := len(ts) - 1; i >= 0; i-- {
		b.Drop(ts[i])
	}
}

// RMSNormArgs are the arguments of rms_norm.
type RMSNormArgs struct {
	Shape []int64  `arg:"normalized_shape"`
	Eps   *float64 `arg:"eps"`
}

// eps is what is added to the mean of squares: unless it is given, the distance
// from 1 to the next number of the input's type.
func (a *RMSNormArgs) eps(d tensor.DType) float64 {
	if a.Eps != nil {
		return *a.Eps
	}
	return d.Epsilon()
}

// RMSNorm is F.rms_norm of PyTorch 2.6: a composition of operators, in
// float32 for 16-bit inputs.
var RMSNorm = define(op.Op{
	Name: "rms_norm", Args: &RMSNormArgs{}, Composite: true,
	Sig: "F.rms_norm(input, normalized_shape: ints, weight: tensor? = None, eps: float? = None)",
	Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*RMSNormArgs)
		if c.Env().Torch.FusedRMSNorm() {
			c.Fail("the fused rms_norm of PyTorch %v is not modelled", c.Env().Torch)
		}
		normRows(c, x, a.Shape)
		if !x.DType.IsFloating() {
			c.Fail("rms_norm needs a floating type, not %v", x.DType)
		}
		var dims []int64
		for i := range a.Shape {
			dims = append(dims, int64(x.Rank()-i-1))
		}
		up := c.Local(c.Do1(To, &ToCopyArgs{DType: x.DType.Accumulate()}, x))
		mark := c.Mark()
		sq := c.Local(c.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Value: 2}}, up))
		mean := c.Local(c.Do1(Mean, &ReduceArgs{Dim: dims, KeepDim: true}, sq))
		c.Drop(c.Do1(AddInPlace, float(a.eps(x.DType)), mean))
		r := c.Do1(Rsqrt, nil, mean)
		c.DropTo(mark)
		c.Local(r)
		y := c.Do1(Mul, &BinaryArgs{}, up, r)
		out := c.Do1(To, &ToCopyArgs{DType: x.DType}, y)
		c.Drop(y)
		if w := c.Opt(1); w != nil {
			y = c.Do1(Mul, &BinaryArgs{}, out, w)
			c.Drop(out)
			out = y
		}
		c.Return(out)
	},
	Source: "aten/src/ATen/native/layer_norm.cpp: rms_norm",
})

// layerNormSizes are the dimensions before those that are normalized, and how many
// elements these have.
func layerNormSizes(x *op.Tensor, a *LayerNormArgs) (lead []int64, n int64) {
	size := x.Size.Slice()
	k, n := len(size)-len(a.Shape), 1
	for _, s := range size[k:] {
		n *= s
	}
	return size[:k], n
}

var evalLayerNorm = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a, x := c.Args.(*LayerNormArgs), c.In[0]
		lead, n := layerNormSizes(x, a)
		l := op.Launch{On: m}
		l.Over(len(lead), c.Out[0])
		l.Seen(c.Out[1], lead...)
		l.Seen(c.Out[2], lead...)
		l.Over(len(lead), x)
		l.Seen(c.Opt(1), n)
		l.Seen(c.Opt(2), n)
		return l.Run(kernel.LayerNorm, nil, a.Eps)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		x := b.SavedIn(0)
		lead, n := layerNormSizes(x, b.Args.(*LayerNormArgs))
		l := op.Launch{On: m}
		l.Over(len(lead), m.Wanted(b, 0))
		l.Seen(m.Wanted(b, 1), n)
		l.Seen(m.Wanted(b, 2), n)
		l.Over(len(lead), b.Grads[0], x)
		l.Seen(b.SavedOut(1), lead...)
		l.Seen(b.SavedOut(2), lead...)
		l.Seen(b.SavedIn(1), n)
		return l.Run(kernel.LayerNormGrad, nil)
	},
}).Otherwise(normalized(func(args any, size []int) (*array.Normalization, float64) {
	a := args.(*LayerNormArgs)
	return array.OverLast(array.Numel(size[len(size)-len(a.Shape):]), array.Numel(size)), a.Eps
}))
