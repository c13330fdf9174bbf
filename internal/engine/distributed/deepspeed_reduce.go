package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// arrived is the hook of a parameter whose gradient is ready (process_gradients).
func (e *Engine) arrived(leaf *autograd.Object) {
	x := e.index[leaf]
	outer := e.p.Push()
	e.p.Label("DeepSpeedZeroOptimizer")
	e.p.Env().GradMode = false
	e.setUpBuckets()
	if e.accumulates() {
		e.fill(x)
	}
	if e.Stage == 2 || e.Overlap && e.boundary() {
		e.intoBucket(x)
	}
	e.p.Pop(outer)
}

// setUpBuckets is setup_buckets.
func (e *Engine) setUpBuckets() {
	if e.ready {
		return
	}
	e.ready = true
	e.pass++
	if !e.Contiguous {
		return
	}
	e.buffers, e.current = nil, 0
	count := 1
	if e.Overlap { // one is filled while the other is reduced
		count = 2
	}
	for range count {
		b := e.vector(e.ReduceBucket, e.DType)
		e.p.Mark(b, trace.Gradients)
		e.buffers = append(e.buffers, b)
	}
}

// fill is _fill_param_grad_accum_attribute.
func (e *Engine) fill(x *zeroParam) {
	g := x.leaf().Grad
	if g == nil {
		return
	}
	c := e.convert(&g.Tensor, e.Accum)
	if c == nil {
		c = e.p.Keep(&g.Tensor)
	}
	if x.accum == nil {
		x.accum = c
		e.p.Mark(c, trace.Gradients)
	} else {
		e.p.Drop(e.p.Do1(aten.AddInPlace, &aten.AddArgs{}, x.accum, c))
		e.p.Drop(c)
	}
	e.dropGrad(x)
}

// intoBucket is reduce_independent_p_g_buckets_and_remove_grads.
func (e *Engine) intoBucket(x *zeroParam) {
	n := x.numel()
	if n == 0 {
		return
	}
	grad := e.forReduction(x)
	if e.elements+n > e.ReduceBucket {
		e.reduceBucket()
		if e.Contiguous && e.Overlap {
			e.current = 1 - e.current
		}
	}
	if x.reduced {
		e.p.Fail("DeepSpeed refuses a second gradient of parameter %s in one backward pass", x.cell.Decl.Name)
	}
	if e.Contiguous {
		if n > e.ReduceBucket {
			e.large = x
		} else {
			e.moveInto(grad, e.buffers[e.current], e.elements)
		}
	}
	e.elements += n
	e.bucket = append(e.bucket, bucketed{x, grad})
}

// reduceBucket is reduce_ipg_grads.
func (e *Engine) reduceBucket() {
	p := e.p
	var view *op.Tensor // a local name until the end
	switch {
	case !e.Contiguous:
		if len(e.bucket) > 0 {
			var grads []*op.Tensor
			for _, b := range e.bucket {
				grads = append(grads, b.grad)
			}
			e.reduceAndCopy(grads)
		}
	case e.large != nil:
		grad := e.forReduction(e.large)
		if !grad.IsContiguous() {
			p.Fail("DeepSpeed views a gradient larger than its bucket as one row, which PyTorch refuses: that of %s is not contiguous", e.large.cell.Decl.Name)
		}
		view = p.Alias(grad, tensor.Contiguous(grad.Size), grad.DType)
		p.Drop(grad)
		e.average(view)
		e.large = nil
	default:
		if e.elements > 0 {
			l := tensor.Contiguous(tensor.D(e.elements))
			t := p.Alias(e.buffers[e.current], l, e.DType)
			e.average(t)
			p.Drop(t)
		}
	}
	e.onReduction(func() {
		for _, b := range e.bucket {
			x := b.zeroParam
			x.reduced = true
			switch {
			case e.Stage == 2 && !x.mine && e.Overlap && !e.Contiguous:
				e.previous = append(e.previous, x)
			case e.Stage == 2 && !x.mine:
				e.clearGrad(x)
			case e.Contiguous && x.mine:
				e.copyToOwn(x)
			}
		}
	})
	for i := len(e.bucket) - 1; i >= 0; i-- {
		p.Drop(e.bucket[i].grad)
	}
	e.bucket, e.elements = e.bucket[:0], 0
	p.Drop(view)
}

// copyToOwn is copy_grads_in_partition: gradients of this process's part leave the bucket.
func (e *Engine) copyToOwn(x *zeroParam) {
	if e.Offload {
		e.copyToHost(x)
		return
	}
	if e.own == nil {
		var n int64
		for _, g := range e.groups {
			for _, y := range g.mine {
				n += y.numel()
			}
		}
		e.own, e.filled = e.vector(n, e.DType), 0
		e.p.Mark(e.own, trace.Gradients)
	}
	grad := e.forReduction(x)
	e.moveInto(grad, e.own, e.filled)
	e.p.Drop(grad)
	e.filled += x.numel()
}

// average is average_tensor of what is in the bucket.
func (e *Engine) average(t *op.Tensor) {
	e.onReduction(func() {
		if !e.ReduceScatter {
			e.p.Drop(e.convert(t, e.Comm))
			return
		}
		type slice struct{ rank, n int64 }
		var slices []slice
		for _, b := range e.bucket {
			ranks, begins := e.mapped(b.zeroParam)
			for i, r := range ranks {
				end := b.numel()
				if i+1 < len(begins) {
					end = begins[i+1]
				}
				n := end - begins[i]
				if last := len(slices) - 1; last >= 0 && slices[last].rank == r {
					slices[last].n += n
				} else {
					slices = append(slices, slice{r, n})
				}
			}
		}
		var order []int64
		of := map[int64][]int64{}
		for _, s := range slices {
			key := s.rank
			if e.MultiRank {
				key = 0
			}
			if of[key] == nil {
				order = append(order, key)
			}
			of[key] = append(of[key], s.n)
		}
		for _, key := range order {
			if !e.MultiRank && e.Overlap {
				e.clearPrevious()
			}
			e.reduceSlices(t, of[key])
		}
	})
}

// reduceSlices reduces parts of a bucket, as many at a time as exceed the size of a bucket.
func (e *Engine) reduceSlices(t *op.Tensor, sizes []int64) {
	var at, n int64
	count := 0
	flush := func() {
		if count == 0 {
			return
		}
		var flat *op.Tensor
		if count > 1 {
			flat = e.vector(n, e.DType)
			e.p.Drop(e.convert(flat, e.Comm))
		} else if e.Comm != e.DType {
			l := tensor.Contiguous(tensor.D(n))
			l.Offset = t.Offset + at
			one := e.p.Alias(t, l, e.DType)
			e.p.Drop(e.convert(one, e.Comm))
			e.p.Drop(one)
		}
		e.p.Drop(flat)
		at, n, count = at+n, 0, 0
	}
	for _, s := range sizes {
		n += s
		if count++; n > e.ReduceBucket {
			flush()
		}
	}
	flush()
}

// reduceAndCopy reduces gradients that are in no bucket (buffered_reduce_fallback).
func (e *Engine) reduceAndCopy(grads []*op.Tensor) {
	if e.Overlap {
		e.clearPrevious()
	}
	e.onReduction(func() {
		flat := e.flatten(grads)
		e.p.Drop(e.convert(flat, e.Comm))
		e.p.Drop(flat)
	})
}

// clearPrevious is _clear_previous_reduced_grads.
func (e *Engine) clearPrevious() {
	for _, x := range e.previous {
		e.clearGrad(x)
	}
	e.previous = e.previous[:0]
}

// reduceGradients is reduce_gradients of stage 1, after the last micro-batch.
func (e *Engine) reduceGradients() {
	var last *op.Tensor // a loop variable
	if !e.Overlap {
		for _, g := range e.groups {
			for _, x := range e.params {
				if x.group != g {
					continue
				}
				grad := e.forReduction(x)
				e.p.Drop(last)
				if last = grad; grad != nil {
					e.intoBucket(x)
				}
			}
		}
	}
	e.endBackward()
	e.p.Drop(last)
}

// endBackward is independent_gradient_partition_epilogue.
func (e *Engine) endBackward() {
	p := e.p
	e.reduceBucket()
	for _, x := range e.params {
		x.reduced = false
	}
	if e.Overlap {
		e.clearPrevious()
	}
	var added []*op.Tensor // a local name
	for _, g := range e.groups {
		if e.Offload {
			break
		}
		fresh := e.gradientsOf(g)
		if g.sums == nil {
			g.sums = fresh
		} else {
			for i, sum := range g.sums {
				p.Drop(p.Do1(aten.AddInPlace, &aten.AddArgs{}, sum, fresh[i]))
			}
			e.dropList(added)
			added = fresh
		}
		if e.boundary() {
			e.dropList(g.averaged)
			g.averaged = e.partition(g)
			e.dropList(g.sums)
			g.sums = nil
		}
	}
	e.dropList(e.buffers) // _release_ipg_buffers
	e.buffers = nil
	p.Drop(e.own)
	e.own, e.ready = nil, false
	for _, x := range e.params {
		e.dropGrad(x)
	}
	e.epilogue = true
	e.dropList(added)
}

// gradientsOf is get_all_grad_tensors of this process's parameters.
func (e *Engine) gradientsOf(g *zeroGroup) []*op.Tensor {
	out := []*op.Tensor{}
	for _, x := range g.mine {
		if t := e.grad(x); t != nil {
			out = append(out, e.p.Keep(t))
		} else {
			out = append(out, e.p.New(x.cell.T.LikeDense(), e.Accum))
		}
	}
	return out
}

// partition is get_flat_partition as a list: the gradients of this process's part, of the
// first and the last parameter what lies in it, and zeros behind the end of all.
func (e *Engine) partition(g *zeroGroup) []*op.Tensor {
	p := e.p
	if len(g.mine) == 0 {
		return []*op.Tensor{e.vector(g.part, e.Accum)}
	}
	var out []*op.Tensor
	var n int64
	for i, t := range g.sums {
		from, size := int64(0), t.Numel()
		if i == 0 {
			from = g.first
			size -= from
		}
		size = min(size, g.part-n)
		if from == 0 && size == t.Numel() {
			out = append(out, p.Keep(t))
		} else {
			of := t
			var c *op.Tensor
			if !t.IsContiguous() {
				c = p.New(tensor.Contiguous(t.Size), t.DType)
				of = c
			}
			l := tensor.Contiguous(tensor.D(size))
			l.Offset = of.Offset + from
			out = append(out, p.Alias(of, l, t.DType))
			p.Drop(c)
		}
		n += size
	}
	if n < g.part {
		out = append(out, e.vector(g.part-n, e.Accum))
	}
	return out
}

// dropList gives up the items of a list, the last first.
func (e *Engine) dropList(ts []*op.Tensor) {
	for i := len(ts) - 1; i >= 0; i-- {
		e.p.Drop(ts[i])
	}
}
