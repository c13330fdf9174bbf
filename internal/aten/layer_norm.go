package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
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
		gradients := 0
		for _, g := range []*op.Tensor{dw, db} {
			if g != nil {
				gradients++
			}
		}
		layerNormPartials(b, x, normRows(&b.Call, x, b.Args.(*LayerNormArgs).Shape), gradients)
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

// layerNormPartials allocates the partial sums with which so many gradients of weight and
// bias over very many short rows are formed in two steps (LaunchGammaBetaBackwardCUDAKernel).
func layerNormPartials(b *op.Back, x *op.Tensor, rows int64, gradients int) {
	if b.Env().NoKernels() || !b.Env().Torch.Has(torchver.LayerNormPartialSums) || gradients == 0 || rows == 0 {
		return
	}
	k := op.Kernel{Rule: layerNormRule, In: tensor.Layout{Size: tensor.D(rows, x.Numel()/rows)}, DType: x.DType, Reduced: uint16(gradients)}
	b.Kernel(k)
	k.Rule.Run(&b.Call, &k)
}

// layerNormRule is of rows and their length, and of how many gradients. The sums take the
// place of gradients that are empty; of the two, which have one size, the empty one stays here.
var layerNormRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
	rows, n := k.In.Dim(0), k.In.Dim(1)
	const block, rowsPerBlock = 32, 32
	if rows <= 64*1024 || n/block >= int64(c.Env().SMs/2) {
		return
	}
	parts := min(max(32768/max(tensor.DivUp(n, block), 1), 1), tensor.DivUp(rows, rowsPerBlock))
	mark := c.Mark()
	for range k.Reduced {
		c.Local(c.NewShape(k.DType, parts, n))
	}
	for range k.Reduced {
		sum := c.NewShape(k.DType, n)
		reductionBlocks(c, &op.Tensor{Layout: tensor.Contiguous(tensor.D(parts, n)), DType: k.DType}, []bool{true, false}, k.DType.Accumulate().Size(), 4)
		c.Drop(sum)
	}
	c.DropTo(mark)
}}

// normSizes are the dimensions before those that are normalized, and how many
// elements these have.
func normSizes(x *op.Tensor, shape []int64) (lead []int64, n int64) {
	size := x.Size.Slice()
	k, n := len(size)-len(shape), 1
	for _, s := range size[k:] {
		n *= s
	}
	return size[:k], n
}

var evalLayerNorm = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a, x := c.Args.(*LayerNormArgs), c.In[0]
		lead, n := normSizes(x, a.Shape)
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
		lead, n := normSizes(x, b.Args.(*LayerNormArgs).Shape)
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
