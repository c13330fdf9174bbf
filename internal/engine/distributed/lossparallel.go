package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// loss_parallel of torch/distributed/tensor/parallel/loss.py: cross_entropy of a DTensor
// that is divided among the classes, without gathering them. Its functions work on a
// rank's part, below autograd; what they allocate is what the functions of Python do.

// lossRows are the rows that run in the place of others for DTensors.
func lossRows(p *python.Interp, fakes *op.Op) map[*op.Op]*op.Op {
	soft, nll := *aten.InnerLogSoftmax, *aten.NLLLossForward
	soft.Steps, nll.Steps = true, true
	soft.Run = func(c *op.Call) { below(p, func() { logSoftmax(c) }) }
	soft.Grad = func(b *op.Back) { // the next function did what there is to do
		b.Set(0, b.Do1(aten.To, &aten.ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0]))
	}
	nll.Run = func(c *op.Call) { below(p, func() { nllForward(c) }) }
	nll.Grad = nllBackward
	return map[*op.Op]*op.Op{aten.InnerLogSoftmax: &soft, aten.NLLLossForward: &nll, aten.ToCopy: fakes}
}

// below runs what DTensor's dispatch calls: neither autograd nor autocast is at work
// there.
func below(p *python.Interp, f func()) {
	outer := p.Push()
	p.Instead, p.Env().GradMode, p.Env().Autocast = nil, false, false
	f()
	p.Pop(outer)
}

// logSoftmax is _log_softmax.
func logSoftmax(c *op.Call) {
	a := c.Args.(*aten.SoftmaxArgs)
	d := c.In[0].DType
	if a.DType != nil {
		d = *a.DType
	}
	over := &aten.ReduceArgs{Dim: []int64{int64(a.Dim)}, KeepDim: true}
	own := c.Do1(aten.Contiguous, nil, c.In[0])
	x := c.Do1(aten.To, &aten.ToCopyArgs{DType: own.DType.Accumulate()}, own)
	c.Drop(own)
	largest := summed(c, c.Do1(aten.Max.Over, over, x))
	shifted := c.NewLike(x)
	exp := c.NewLike(x)
	sums := c.Do1(aten.Sum, over, exp)
	c.Drop(exp)
	sums = summed(c, sums)
	logs := c.NewLike(sums)
	out := c.NewLike(x)
	if d != out.DType {
		wide := out
		out = c.New(wide.Layout, d)
		c.Drop(wide)
	}
	c.Drop(x, shifted, largest, sums, logs)
	c.Return(out)
}

// summed is an all_reduce of a tensor that is given up.
func summed(c *op.Call, t *op.Tensor) *op.Tensor {
	out := allReduce(c, t)
	c.Drop(t)
	return out
}

// whereCounted is torch.where(target != ignore_index, t, 0), of the size of the condition;
// t stays the caller's.
func whereCounted(c *op.Call, size tensor.Dims, d tensor.DType) *op.Tensor {
	counted := c.New(tensor.Contiguous(size), tensor.Bool)
	zero := c.NewShape(d)
	out := c.New(tensor.Contiguous(size), d)
	c.Drop(zero, counted)
	return out
}

// masked are the indices of a rank's part, and which of them lie in those of others
// (_MaskPartial._partition_value).
func masked(c *op.Call, indices *op.Tensor) (local, mask *op.Tensor) {
	bools := func() *op.Tensor { return c.New(indices.LikeDense(), tensor.Bool) }
	below, above := bools(), bools()
	mask = bools()
	c.Drop(below, above)
	clone := c.NewLike(indices)
	local = c.NewLike(indices)
	c.Drop(clone)
	return local, mask
}

// nllForward is _nll_loss_forward.
func nllForward(c *op.Call) {
	x, target := c.In[0], c.In[1]
	safe := whereCounted(c, target.Size, target.DType)
	local, mask := masked(c, safe)
	picked := c.New(tensor.Contiguous(target.Size), x.DType)
	c.Drop(mask)
	whole := allReduce(c, picked)
	negative := c.NewLike(whole)
	loss := whereCounted(c, target.Size, x.DType)
	c.Drop(negative)
	counted := c.New(tensor.Contiguous(target.Size), tensor.Bool)
	n := c.Do1(aten.Sum, &aten.ReduceArgs{}, counted)
	c.Drop(counted)
	total := c.NewShape(x.DType)
	c.Drop(n)
	sum := c.Do1(aten.Sum, &aten.ReduceArgs{}, loss)
	if c.Args.(*aten.LossArgs).Reduction == "mean" {
		mean := c.NewShape(x.DType)
		c.Drop(sum)
		sum = mean
	}
	c.Drop(loss, safe, local, picked, whole)
	c.Return(sum, total)
}

// nllBackward is _nll_loss_and_log_softmax_backward.
func nllBackward(b *op.Back) {
	c, x, target := &b.Call, b.SavedIn(0), b.SavedIn(1)
	var grad *op.Tensor
	if b.Args.(*aten.LossArgs).Reduction == "mean" {
		grad = c.NewShape(x.DType)
	}
	safe := whereCounted(c, target.Size, target.DType)
	zeros := c.NewLike(x)
	local, mask := masked(c, safe)
	as := c.New(tensor.Contiguous(target.Size), x.DType)
	update := c.New(tensor.Contiguous(target.Size), x.DType)
	c.Drop(as)
	rows := c.New(tensor.Contiguous(target.Size), tensor.Int64)
	c.Drop(c.Do1(aten.IndexPutInPlace, &aten.IndexPutArgs{}, zeros, update, rows, local))
	scaled := whereCounted(c, target.Size, x.DType)
	c.Drop(grad)
	exp := c.NewLike(x)
	sum := c.NewLike(x)
	c.Drop(exp)
	b.Set(0, c.NewLike(x))
	c.Drop(sum, scaled, safe, zeros, mask, local, update, rows)
}
