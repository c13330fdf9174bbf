package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

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

// RMSNorm is F.rms_norm: since PyTorch 2.9 one kernel, before a composition of
// operators. What the kernel does not take stays a composition.
var RMSNorm = define(op.Op{
	Name: "rms_norm", Args: &RMSNormArgs{}, Cast: op.CastFP32, CastSince: torchver.RMSNormInFloat32, Composite: true,
	Sig: "F.rms_norm(input, normalized_shape: ints, weight: tensor? = None, eps: float? = None)",
	Run: func(c *op.Call) {
		x, w, a := c.In[0], c.Opt(1), c.Args.(*RMSNormArgs)
		normRows(c, x, a.Shape)
		if !x.DType.IsFloating() {
			c.Fail("rms_norm needs a floating type, not %v", x.DType)
		}
		fused := c.Env().Torch.Has(torchver.FusedRMSNorm)
		if !fused || x.IsChannelsLast() || w != nil && w.DType != x.DType {
			c.Return(rmsNormParts(c, x, w, a, fused))
			return
		}
		outs := c.Do(FusedRMSNorm, a, c.In...)
		c.Return(outs[0])
		c.Drop(outs[1])
	},
	Source: "aten/src/ATen/native/layer_norm.cpp: rms_norm_symint",
})

// rmsNormParts is rms_norm as a composition of operators, in float32 for 16-bit
// inputs. The one beside the kernel (rms_norm_composite) converts the result after it is
// multiplied with the weight; the one before it did so before.
func rmsNormParts(c *op.Call, x, w *op.Tensor, a *RMSNormArgs, beside bool) *op.Tensor {
	var dims []int64
	for i := range a.Shape {
		dims = append(dims, int64(x.Rank()-i-1))
	}
	weighted := func(y *op.Tensor) *op.Tensor {
		if w == nil {
			return y
		}
		out := c.Do1(Mul, &BinaryArgs{}, y, w)
		c.Drop(y)
		return out
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
	if beside {
		y = weighted(y)
	}
	out := c.Do1(To, &ToCopyArgs{DType: x.DType, Device: true}, y) // type_as
	c.Drop(y)
	if !beside {
		out = weighted(out)
	}
	return out
}

// FusedRMSNorm is the kernel of rms_norm, which is layer_norm's, and keeps rstd.
var FusedRMSNorm = define(op.Op{
	Name: "_fused_rms_norm", Takes: op.FloatsOfOneType, Args: &RMSNormArgs{}, Eval: evalRMSNorm,
	Run: func(c *op.Call) {
		x := c.In[0]
		normRows(c, x, c.Args.(*RMSNormArgs).Shape)
		x = c.Contiguous(x)
		y := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Return(y, c.New(tensor.Contiguous(rowStatistics(x.Size, c.Args.(*RMSNormArgs).Shape)), x.DType.Accumulate()))
	},
	Save: []op.Save{op.In(0), op.Out(1), op.In(1)},
	Node: "FusedRmsNormBackward0",
	Grad: func(b *op.Back) { // _fused_rms_norm_backward_cuda
		if b.Grads[1] != nil {
			rmsNormGraph(b)
			return
		}
		x, w := b.SavedIn(0), b.SavedIn(1)
		b.Contiguous(x)
		if b.Need(0) {
			b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		}
		gradients := 0
		if b.Need(1) {
			gradients++
			b.Set(1, b.NewLike(w))
		}
		b.Contiguous(b.Grads[0])
		layerNormPartials(b, x, normRows(&b.Call, x, b.Args.(*RMSNormArgs).Shape), gradients)
	},
	Source: "aten/src/ATen/native/cuda/layer_norm_kernel.cu: _fused_rms_norm_cuda",
})

// rowStatistics is the shape of a number for each row: the dimensions of a row are 1.
func rowStatistics(size tensor.Dims, row []int64) tensor.Dims {
	for i := range row {
		size = size.Set(size.Len()-1-i, 1)
	}
	return size
}

// rmsNormGraph is infinitely_differentiable_native_rms_norm_backward: the derivative as
// operators, for gradients that are differentiated again, and for one of rstd.
func rmsNormGraph(b *op.Back) {
	x, w, g, gStat := b.SavedIn(0), b.SavedIn(1), b.Grads[0], b.Grads[1]
	row := b.Args.(*RMSNormArgs).Shape
	mul := func(x, y *op.Tensor) *op.Tensor { return b.Local(b.Do1(Mul, &BinaryArgs{}, x, y)) }
	var inner, outer []int64
	n := int64(1)
	for i := range x.Rank() {
		if i < x.Rank()-len(row) {
			outer = append(outer, int64(i))
		} else {
			inner, n = append(inner, int64(i)), n*x.Dim(i)
		}
	}
	stat := &ShapeArgs{Shape: b.OutM[1].Size.Slice()}
	rstd := b.Local(b.Do1(View, stat, b.SavedOut(1)))
	cube := b.Local(b.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Value: 3}}, rstd))
	slope := func() *op.Tensor {
		return b.Local(b.Do1(Div, &BinaryArgs{Other: op.Number{Set: true, Float: true, Value: float64(n)}}, mul(x, cube)))
	}
	weighted := g
	if g != nil && w != nil {
		weighted = mul(g, w)
	}
	if b.Need(0) {
		var ofResult, ofStat *op.Tensor
		if g != nil {
			mark := b.Mark()
			sum := b.Do1(Sum, &ReduceArgs{Dim: inner, KeepDim: true}, mul(x, weighted))
			b.DropTo(mark)
			b.Local(sum)
			right := mul(slope(), sum) // GCC computes the last argument first
			ofResult = b.Do1(Sub, &BinaryArgs{}, mul(rstd, weighted), right)
			b.DropTo(mark)
		}
		if gStat != nil {
			if ofResult != nil {
				b.Local(ofResult)
			}
			mark := b.Mark()
			ones := b.Local(b.Do1(View, stat, gStat))
			ofStat = b.Do1(Mul, &BinaryArgs{}, b.Local(b.Do1(Neg, nil, slope())), ones)
			b.DropTo(mark)
		}
		switch {
		case ofResult != nil && ofStat != nil:
			b.Local(ofStat)
			b.Set(0, b.Do1(Add, &BinaryArgs{}, ofResult, ofStat))
		case ofResult != nil:
			b.Set(0, ofResult)
		case ofStat != nil:
			b.Set(0, ofStat)
		}
	}
	if b.Need(1) && g != nil {
		full := mul(g, mul(x, rstd))
		if len(outer) == 0 {
			b.Set(1, b.Keep(full))
			return
		}
		b.Set(1, b.Do1(Sum, &ReduceArgs{Dim: outer}, full))
	}
}

var evalRMSNorm = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a, x := c.Args.(*RMSNormArgs), c.In[0]
		lead, n := normSizes(x, a.Shape)
		l := op.Launch{On: m}
		l.Over(len(lead), c.Out[0])
		l.Seen(c.Out[1], lead...)
		l.Over(len(lead), x)
		l.Seen(c.Opt(1), n)
		return l.Run(kernel.RMSNorm, nil, a.eps(x.DType.Accumulate()))
	},
	Backward: func(m op.Machine, b *op.Back) error {
		if b.Grads[1] != nil {
			return &op.Refusal{What: "the gradient of what rms_norm keeps of its rows"}
		}
		x := b.SavedIn(0)
		lead, n := normSizes(x, b.Args.(*RMSNormArgs).Shape)
		l := op.Launch{On: m}
		l.Over(len(lead), m.Wanted(b, 0))
		l.Seen(m.Wanted(b, 1), n)
		l.Over(len(lead), b.Grads[0], x)
		l.Seen(b.SavedOut(1), lead...)
		l.Seen(b.SavedIn(1), n)
		return l.Run(kernel.RMSNormGrad, nil)
	},
})
