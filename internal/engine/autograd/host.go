package autograd

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// HostTrace is the life of the tensors that a job keeps in host memory
// on purpose: what it offloads, keeps or averages there. Batches on their way to
// the GPU are not among them. Blocks have numbers of their own; operators and
// layers are those of the device's trace.
type HostTrace struct {
	Events     []trace.Event    // allocations and frees
	Categories []trace.Category // by block
	Pinned     []bool           // by block: in page-locked memory
}

// allocHost makes a block of n bytes in host memory.
func (p *Player) allocHost(st *storage, n tensor.Bytes) {
	st.id, st.bytes, st.layer = int32(len(p.host.Categories)), n, p.Layer
	p.host.Categories = append(p.host.Categories, trace.Temporaries)
	p.host.Pinned = append(p.host.Pinned, p.pinned)
	p.host.Events = p.appendEvent(p.host.Events, p.event(trace.Alloc, st.id, n))
	p.count(&p.hostLive, n)
	if p.backend != nil {
		p.Must(p.backend.Alloc(-st.id, n, 0))
	}
}

func (p *Player) freeHost(st *storage) {
	p.host.Events = p.appendEvent(p.host.Events, p.event(trace.Free, st.id, 0))
	p.hostLive -= st.bytes
	if p.backend != nil {
		p.Must(p.backend.Free(-st.id))
	}
}

// Transfer is the copy of a tensor to the host or to the device, outside of
// autograd. A tensor whose elements are not one dense block is first made
// contiguous on the device (copy_requires_temporaries in
// aten/src/ATen/native/cuda/Copy.cu); like is the layout of the copy.
func (p *Player) Transfer(t *op.Tensor, host, pinned bool, like tensor.Layout) *op.Tensor {
	var c *op.Tensor
	p.On(host, pinned, func() { c = p.New(like, t.DType) })
	p.CopyTo(c, t)
	if from := Of(t).st; from.host != host && !sameDense(t.Layout, like) {
		p.On(from.host, false, func() { p.Drop(p.New(tensor.Contiguous(t.Size), t.DType)) })
	}
	return c
}

// sameDense reports whether two layouts put the elements of one dense block in
// the same order, so that one can be copied to the other as bytes.
func sameDense(a, b tensor.Layout) bool {
	if !a.IsDense() {
		return false
	}
	for i := range a.Rank() {
		if a.Dim(i) > 1 && a.Stride.At(i) != b.Stride.At(i) {
			return false
		}
	}
	return true
}

// ToHostRow and ToDeviceRow are Tensor.to for the other side, as autograd sees
// it: the gradient is copied back.
var (
	ToHostRow   = &op.Op{Name: "_to_copy", Eval: aten.ToCopy.Eval, Node: "ToCopyBackward0", Run: copyTo(true), Grad: copyBack(false)}
	ToDeviceRow = &op.Op{Name: "_to_copy", Eval: aten.ToCopy.Eval, Node: "ToCopyBackward0", Run: copyTo(false), Grad: copyBack(true)}
)

func copyTo(host bool) func(*op.Call) {
	return func(c *op.Call) { c.Return(playerOf(c.Exec).Transfer(c.In[0], host, false, c.In[0].LikeDense())) }
}

func copyBack(host bool) func(*op.Back) {
	return func(b *op.Back) {
		b.Set(0, playerOf(b.Exec).Transfer(b.Grads[0], host, false, b.Grads[0].LikeDense()))
	}
}

// playerOf is the player behind what a row sees.
func playerOf(x op.Exec) *Player {
	if g, ok := x.(*guard); ok {
		return g.Player
	}
	return x.(*Player)
}

// CopyTemporaries are the blocks on the device, which the caller drops in order, that a
// copy between the device and the host takes unless both lie alike: tensors of one type
// without gaps are copied as bytes. Types are converted on the host, or on the device if
// the copy does not wait (copy_kernel_cuda in aten/src/ATen/native/cuda/Copy.cu).
func (p *Player) CopyTemporaries(to tensor.Layout, toType tensor.DType, from tensor.Layout, fromType tensor.DType, toDevice, nonBlocking bool) []*op.Tensor {
	size := to.Size
	if e, err := from.Expand(size.Slice()); err == nil {
		from = e
	}
	if size.Numel() == 0 || toType == fromType && sameDense(from, to) {
		return nil
	}
	fresh := func(d tensor.DType) *op.Tensor { return p.New(tensor.Contiguous(size), d) }
	switch {
	case toDevice && nonBlocking: // converted on the device
		if !to.IsContiguous() || toType != fromType {
			return []*op.Tensor{fresh(fromType)}
		}
	case toDevice:
		if !to.IsContiguous() {
			return []*op.Tensor{fresh(toType)}
		}
	case nonBlocking && toType != fromType:
		like := from.LikeDense()
		out := []*op.Tensor{p.New(like, toType)}
		if !like.IsContiguous() {
			out = append(out, fresh(toType))
		}
		return out
	case !from.IsContiguous():
		return []*op.Tensor{fresh(fromType)}
	}
	return nil
}
