package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// keepGradient puts a reduced gradient aside, to which that of this pass is added
// (prepare_gradient_for_backward).
func (h *flatHandle) keepGradient() {
	o := autograd.Of(h.flat)
	if h.full == nil || o.Grad == nil || o.Grad.Numel() == h.total {
		return
	}
	if h.Offload {
		dropGrad(h.p, o)
		return
	}
	h.saved, o.Grad = &o.Grad.Tensor, nil
}

// freesInBackward is _should_free_in_backward.
func (h *flatHandle) freesInBackward() bool {
	return h.full != nil && (!h.local || h.Flat.Frees())
}

// freeInBackward is _post_backward_reshard.
func (h *flatHandle) freeInBackward() {
	h.reshard(h.freesInBackward())
	h.prefetch()
}

// postBackward is _post_backward_hook: the gradient of the flat parameter, which the
// backward pass itself holds until the hook returns, is divided.
func (h *flatHandle) postBackward() {
	p, o := h.p, autograd.Of(h.flat)
	h.phase = shardPostBackward
	if o.Grad == nil {
		return
	}
	h.freeInBackward()
	if h.local {
		if h.Flat.Orig {
			h.wholeGradients()
		}
		return
	}
	p.Labelled("FSDP::post_backward_reduce", h.layer, func() {
		p.OnStream(autograd.ReduceStream, func() {
			computed := p.Keep(&o.Grad.Tensor)
			if o.Grad.DType != h.reduces {
				c := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: h.reduces}, &o.Grad.Tensor)
				p.Release(o.Grad)
				o.Grad = autograd.Of(c)
			}
			if h.full != nil {
				h.reduce()
			} else {
				h.reduceWhole()
			}
			p.Drop(computed)
		})
	})
}

// reduce is _reduce_grad: a reduce-scatter of the gradient, which is padded first if it
// does not divide, and an all-reduce of the part where groups of ranks have all.
func (h *flatHandle) reduce() {
	p, o := h.p, autograd.Of(h.flat)
	grad := &o.Grad.Tensor
	o.Grad = nil
	padded := grad
	if n := h.part * h.ranks; n > h.total {
		padded = p.Do1(aten.ConstantPad, &aten.PadArgs{Pad: []int64{0, n - h.total}}, grad)
	}
	sum := p.New(tensor.Contiguous(tensor.D(h.part)), h.reduces)
	p.Mark(sum, trace.Gradients)
	stream := autograd.ReduceStream
	if h.Replicas > 1 {
		stream = autograd.ReplicateStream
	}
	p.OnStream(stream, func() { sum = h.toParameters(sum) })
	if h.saved == nil {
		h.saved = p.Keep(sum)
	} else {
		p.Drop(p.Do1(aten.AddInPlace, &aten.AddArgs{}, h.saved, sum))
	}
	if h.Offload {
		h.shardedGradients(h.onHost)
	} else {
		h.shardedGradients(h.saved)
	}
	p.Drop(grad)
	if padded != grad {
		p.Drop(padded)
	}
	p.Drop(sum)
}

// toParameters is _cast_grad_to_param_dtype.
func (h *flatHandle) toParameters(grad *op.Tensor) *op.Tensor {
	if grad.DType == h.dtype {
		return grad
	}
	c := h.p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: h.dtype}, grad)
	h.p.Mark(c, trace.Gradients)
	h.p.Drop(grad)
	return c
}

// reduceWhole is _reduce_grad_no_shard.
func (h *flatHandle) reduceWhole() {
	o := autograd.Of(h.flat)
	o.Grad = autograd.Of(h.toParameters(&o.Grad.Tensor))
	h.shardedGradients(&o.Grad.Tensor)
}

// shardedGradients gives the parameters their parts of a gradient (_use_sharded_grad_views).
func (h *flatHandle) shardedGradients(of *op.Tensor) {
	if !h.Flat.Orig {
		return
	}
	p := h.p
	for _, x := range h.cells {
		o := autograd.Of(x.T)
		dropGrad(p, o)
		if x.Frozen || x.T.Numel() == 0 {
			continue
		}
		l := x.T.Layout
		o.Grad = autograd.Of(p.Alias(of, l, of.DType))
		if o.Ready != nil {
			o.Ready(o)
		}
	}
}

// wholeGradients gives the parameters their parts of a gradient that is not reduced
// (_use_unsharded_grad_views). Where they have no gradient they get one of their own size
// first, for whose data the part is taken.
func (h *flatHandle) wholeGradients() {
	p, grad := h.p, autograd.Of(h.flat).Grad
	at, k := int64(0), 0
	for i, n := range h.pieces {
		if !h.pads[i] {
			x := h.cells[k]
			o := autograd.Of(x.T)
			size := h.shapes[k]
			if o.Grad == nil && (x.T.Size != size || x.T.DType != grad.DType) {
				p.Drop(p.New(tensor.Contiguous(x.T.Size), x.T.DType))
			}
			dropGrad(p, o)
			l := tensor.Contiguous(size)
			l.Offset = at
			o.Grad = autograd.Of(p.Alias(&grad.Tensor, l, grad.DType))
			k++
		}
		at += n
	}
}

// FlatGradients lists the gradients of a model that FullyShardedDataParallel divides, in the
// order of its instances.
func FlatGradients(m *python.Module) []*op.Tensor {
	var out []*op.Tensor
	for _, s := range m.Hooks.(*flatState).states {
		if s.handle == nil {
			continue
		}
		leaves := []*op.Tensor{s.handle.flat}
		if s.Flat.Orig {
			leaves = nil
			for _, x := range s.handle.cells {
				leaves = append(leaves, x.T)
			}
		}
		for _, t := range leaves {
			if g := autograd.Of(t).Grad; g != nil {
				out = append(out, &g.Tensor)
			}
		}
	}
	return out
}

// dropGrad gives up the gradient of a leaf.
func dropGrad(p *python.Interp, leaf *autograd.Object) {
	if g := leaf.Grad; g != nil {
		leaf.Grad = nil
		p.Release(g)
	}
}
