package autograd

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// copySlicesRow and asStridedRow stand for the two nodes that only the engine
// makes, when an operation modifies a view in place.
var (
	copySlicesRow = &op.Op{Name: "copy_slices", Node: "CopySlices"}
	asStridedRow  = &op.Op{Name: "as_strided", Node: "AsStridedBackward0", Grad: asStridedGrad}
)

type asStrided struct{ view tensor.Layout }

// applySlices is CopySlices::apply (torch/csrc/autograd/functions/tensor.cpp):
// the gradient of the base is copied, the slice of it that the view covered is
// cloned, sent through the operation's own derivative and copied back.
func (p *Player) applySlices(n *Node, b *op.Back) {
	s := n.slices
	grad := b.Grads[0]
	result := p.New(tensor.Layout{Size: s.base.Size, Stride: s.base.Stride}, grad.DType)
	view := s.view
	view.Offset -= s.base.Offset
	slice := p.Alias(result, view, grad.DType)
	clone := p.New(tensor.Contiguous(view.Size), grad.DType)
	p.CopyTo(result, grad)
	p.CopyTo(clone, slice)
	inner := p.apply(s.fn, []*op.Tensor{clone})
	p.Drop(clone)
	for i, r := range inner.Results {
		switch {
		case r == nil:
		case i == 0:
			p.CopyTo(slice, r)
			p.Drop(r)
			if b.Need(0) {
				b.Set(0, p.Keep(result))
			}
		case b.Need(i):
			b.Set(i, r)
		default:
			p.Drop(r)
		}
	}
	p.backs.Put(inner)
	p.Drop(slice, result)
}

// asStridedGrad is as_strided_backward (torch/csrc/autograd/FunctionsManual.cpp)
// for views whose elements do not overlap.
func asStridedGrad(b *op.Back) {
	inL, outL, n := asStridedLayouts(b)
	if selfOverlaps(&inL) || selfOverlaps(&outL) {
		b.Fail("an in-place operation on an expanded view is not modelled")
	}
	base := b.NewShape(b.Grads[0].DType, n)
	b.Set(0, b.ViewOf(base, inL))
	b.Drop(base)
}

// asStridedLayouts are the base and the view within the elements that they
// share.
func asStridedLayouts(b *op.Back) (in, out tensor.Layout, elements int64) {
	in, out = b.InM[0].Layout, b.Args.(*asStrided).view
	shared := min(in.Offset, out.Offset)
	in.Offset -= shared
	out.Offset -= shared
	return in, out, max(in.StorageElems(), out.StorageElems())
}

// asStridedValues computes what asStridedGrad allocated: zeros, with the gradient
// where the view was.
func (p *Player) asStridedValues(b *op.Back) {
	_, view, n := asStridedLayouts(b)
	whole := p.Alias(b.Results[0], tensor.Contiguous(tensor.D(n)), b.Grads[0].DType)
	p.Fill(whole, 0)
	part := p.Alias(b.Results[0], view, b.Grads[0].DType)
	p.CopyTo(part, b.Grads[0])
	p.Drop(part, whole)
}

// selfOverlaps reports a dimension that repeats elements.
func selfOverlaps(l *tensor.Layout) bool {
	for i := range l.Rank() {
		if l.Dim(i) > 1 && l.Stride.At(i) == 0 {
			return true
		}
	}
	return false
}
