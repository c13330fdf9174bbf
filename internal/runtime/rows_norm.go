package runtime

import (
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// normalized is a tensor with the dimensions from k on as one, and the sizes of
// those before.
func (x *Executor) normalized(t *op.Tensor, k int) (kernel.Tensor, []int64, error) {
	lead := t.Size.Slice()[:k]
	n := int64(1)
	for i := k; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	v, err := x.viewed(t, append(append([]int64(nil), lead...), n)...)
	return v, lead, err
}

// collector gathers operands until one of them fails.
type collector struct {
	ts  []kernel.Tensor
	err error
}

func (c *collector) add(t kernel.Tensor, err error) {
	if c.err == nil {
		c.err = err
	}
	c.ts = append(c.ts, t)
}

// optional returns ts[i], or nil beyond the end.
func optional(ts []*op.Tensor, i int) *op.Tensor {
	if i < len(ts) {
		return ts[i]
	}
	return nil
}

func layerNorm(x *Executor, c *op.Call) error {
	a, in := c.Args.(*op.LayerNormArgs), c.In[0]
	k := in.Rank() - len(a.Shape)
	var o collector
	v, lead, err := x.normalized(in, k)
	y, _, err2 := x.normalized(c.Out[0], k)
	n := v.Size.At(v.Size.Len() - 1)
	o.add(y, err2)
	o.add(x.viewed(c.Out[1], lead...))
	o.add(x.viewed(c.Out[2], lead...))
	o.add(v, err)
	o.add(x.viewed(optional(c.In, 1), n))
	o.add(x.viewed(optional(c.In, 2), n))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.LayerNorm, o.ts, nil, a.Eps)
}

func layerNormGrad(x *Executor, b *op.Back) error {
	in := b.SavedIn[0]
	k := in.Rank() - len(b.Args.(*op.LayerNormArgs).Shape)
	var o collector
	v, lead, err := x.normalized(in, k)
	g, _, err2 := x.normalized(b.Grads[0], k)
	n := v.Size.At(v.Size.Len() - 1)
	if y := wanted(b, 0); y != nil {
		t, _, err := x.normalized(y, k)
		o.add(t, err)
	} else {
		o.add(kernel.Tensor{}, nil)
	}
	o.add(x.viewed(wanted(b, 1), n))
	o.add(x.viewed(wanted(b, 2), n))
	o.add(g, err2)
	o.add(v, err)
	o.add(x.viewed(b.SavedOut[1], lead...))
	o.add(x.viewed(b.SavedOut[2], lead...))
	o.add(x.viewed(optional(b.SavedIn, 1), n))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.LayerNormGrad, o.ts, nil)
}

// pixels is a tensor of images, or a gradient of them, as [N, C, S].
func (x *Executor) pixels(t *op.Tensor) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	n := int64(1)
	for i := 2; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	return x.viewed(t, t.Dim(0), t.Dim(1), n)
}

// cumulative is the momentum with which running statistics are means over all
// batches so far, of which this is one more.
func (x *Executor) cumulative(mean *op.Tensor) float64 {
	if x.batches == nil {
		x.batches = map[int32]int{}
	}
	x.batches[engine.BlockOf(mean)]++
	return 1 / float64(x.batches[engine.BlockOf(mean)])
}

func batchNorm(x *Executor, c *op.Call) error {
	a, in := c.Args.(*op.BatchNormArgs), c.In[0]
	training := a.Batch || !a.Running && c.Env().Training
	var o collector
	o.add(x.pixels(c.Out[0]))
	for _, t := range c.Out[1:3] {
		if t.Numel() == 0 {
			t = nil
		}
		o.add(x.operands(t)[0], nil)
	}
	o.add(x.pixels(in))
	for i := 1; i <= 4; i++ {
		o.add(x.operand(optional(c.In, i)), nil)
	}
	if o.err != nil {
		return o.err
	}
	momentum := a.Momentum
	if training && a.Cumulative {
		momentum = x.cumulative(c.In[3])
	}
	return x.launch(kernel.BatchNorm, o.ts, []int64{flag(training)}, momentum, a.Eps)
}

func batchNormGrad(x *Executor, b *op.Back) error {
	a := b.Args.(*op.BatchNormArgs)
	if !(a.Batch || !a.Running && b.Env().Training) {
		return errView
	}
	var o collector
	o.add(x.pixels(wanted(b, 0)))
	o.add(x.operand(wanted(b, 1)), nil)
	o.add(x.operand(wanted(b, 2)), nil)
	o.add(x.pixels(b.Grads[0]))
	o.add(x.pixels(b.SavedIn[0]))
	o.add(x.operand(b.SavedOut[1]), nil)
	o.add(x.operand(b.SavedOut[2]), nil)
	o.add(x.operand(optional(b.SavedIn, 1)), nil)
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.BatchNormGrad, o.ts, []int64{1})
}

// countBatch adds 1 in training.
func countBatch(x *Executor, c *op.Call) error {
	if !c.Env().Training {
		return nil
	}
	return x.apply(kernel.Affine, c.In[0], c.In[:1], 1, 1)
}

// groups is a tensor of images as [N, G, C/G, S].
func (x *Executor) groups(t *op.Tensor, g int64) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	n := int64(1)
	for i := 2; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	return x.viewed(t, t.Dim(0), g, t.Dim(1)/g, n)
}

func groupNorm(x *Executor, c *op.Call) error {
	a, in := c.Args.(*op.GroupNormArgs), c.In[0]
	g := a.Groups
	var o collector
	o.add(x.groups(c.Out[0], g))
	o.add(x.operand(c.Out[1]), nil)
	o.add(x.operand(c.Out[2]), nil)
	o.add(x.groups(in, g))
	o.add(x.viewed(optional(c.In, 1), g, in.Dim(1)/g))
	o.add(x.viewed(optional(c.In, 2), g, in.Dim(1)/g))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.GroupNorm, o.ts, nil, a.Eps)
}

func groupNormGrad(x *Executor, b *op.Back) error {
	in, g := b.SavedIn[0], b.Args.(*op.GroupNormArgs).Groups
	var o collector
	o.add(x.groups(wanted(b, 0), g))
	o.add(x.viewed(wanted(b, 1), g, in.Dim(1)/g))
	o.add(x.viewed(wanted(b, 2), g, in.Dim(1)/g))
	o.add(x.groups(b.Grads[0], g))
	o.add(x.groups(in, g))
	o.add(x.operand(b.SavedOut[1]), nil)
	o.add(x.operand(b.SavedOut[2]), nil)
	o.add(x.viewed(optional(b.SavedIn, 1), g, in.Dim(1)/g))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.GroupNormGrad, o.ts, nil)
}

// softmax is one over a dimension, of which kernels know the last only.
func softmax(forward, grad *kernel.Kernel) row {
	return row{
		forward: func(x *Executor, c *op.Call) error {
			in, y := c.In[0], c.Out[0]
			if in.Rank() == 0 { // as if it were a vector of one element
				return x.launch(forward, []kernel.Tensor{x.at(y, y.Unsqueeze(0)), x.at(in, in.Unsqueeze(0))}, nil)
			}
			d := dim(c.Args.(*op.SoftmaxArgs).Dim, in.Rank())
			return x.launch(forward, []kernel.Tensor{x.at(y, last(y, d)), x.at(in, last(in, d))}, nil)
		},
		backward: func(x *Executor, b *op.Back) error {
			g, r, y := b.Grads[0], b.SavedOut[0], b.Results[0]
			if g.Rank() == 0 {
				return x.launch(grad, []kernel.Tensor{x.at(y, y.Unsqueeze(0)), x.at(g, g.Unsqueeze(0)), x.at(r, r.Unsqueeze(0))}, nil)
			}
			d := dim(b.Args.(*op.SoftmaxArgs).Dim, g.Rank())
			return x.launch(grad, []kernel.Tensor{x.at(y, last(y, d)), x.at(g, last(g, d)), x.at(r, last(r, d))}, nil)
		},
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// normRows are normalizations.
var normRows = map[*op.Op]row{
	op.NativeLayerNorm: row{forward: layerNorm, backward: layerNormGrad}.otherwise(layerNormAside),
	op.NativeGroupNorm: row{forward: groupNorm, backward: groupNormGrad}.otherwise(groupNormAside),
	op.CountBatch:      {forward: countBatch},
	op.NativeBatchNorm: row{forward: batchNorm, backward: batchNormGrad}.otherwise(batchNormAside),
	op.CudnnBatchNorm:  row{forward: batchNorm, backward: batchNormGrad}.otherwise(batchNormAside),
	op.InnerSoftmax:    softmax(kernel.Softmax, kernel.SoftmaxGrad),
	op.InnerLogSoftmax: softmax(kernel.LogSoftmax, kernel.LogSoftmaxGrad),
}
