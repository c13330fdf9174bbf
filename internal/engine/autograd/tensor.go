package autograd

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// storage is one block of memory, shared by the tensors over it.
type storage struct {
	id    int32 // 0 for an empty storage, which the allocator never sees
	refs  int32 // tensor objects over it
	bytes tensor.Bytes
	layer int32 // that made it
	saved bool  // counted among what the graph keeps

	version int   // how often an operator modified it in place
	changed place // where it did last
	host    bool  // in host memory: id is one of the host's trace
	from    any   // what this is a copy on the device of
}

// Object is what lies behind an op.Tensor: PyTorch's TensorImpl with its
// autograd meta data.
type Object struct {
	op.Tensor
	st   *storage
	refs int32

	Requires  bool  // requires_grad of a leaf, or there is a gradient function
	fn        *Node // gradient function; nil for a leaf
	nr        int   // which result of fn this is
	version   int   // in-place modifications seen by fn, for views
	base      *Object
	Inference bool // made under torch.inference_mode: its views know nothing of it
	returned  bool // a view of an input that an autograd.Function returned, or a view of that
	Grad      *Object
	acc       *Node // the leaf's AccumulateGrad node while a graph holds it
	Param     bool
	Wrapped   bool               // an instance of a subclass of Tensor, such as DTensor: no gradient is added to it in place
	Spread    *Spread            // of a DTensor; nil: it is none
	Ready     func(leaf *Object) // Tensor.register_post_accumulate_grad_hook
	Reduce    func(leaf *Object) // a post hook of the AccumulateGrad node: it runs without a gradient, too
}

// Spread is how a DTensor lies on the ranks.
type Spread struct {
	program.Placement
	Summand bool // each rank has a summand of its gradient
}

// Of returns what lies behind t.
func Of(t *op.Tensor) *Object { return t.Aux.(*Object) }

// newObject makes a tensor object with one reference over st, which gains one.
func (p *Player) newObject(st *storage, l tensor.Layout, d tensor.DType) *Object {
	o := p.objects.Get(p.Meter)
	o.Tensor = op.Tensor{Layout: l, DType: d, Aux: o}
	o.st, o.refs = st, 1
	st.refs++
	return o
}

// New implements op.Exec.
func (p *Player) New(l tensor.Layout, d tensor.DType) *op.Tensor {
	if t := p.into; t != nil && t.Size == l.Size && t.DType == d {
		p.into = nil
		return p.Alias(t, t.Layout, d)
	}
	n, err := tensor.MulBytes(l.StorageElems(), d.Size())
	if err != nil {
		p.Fail("a tensor of shape %v and type %v: %v", l.Size, d, err)
	}
	return p.NewIn(n, l, d)
}

// NewIn implements op.Exec.
func (p *Player) NewIn(bytes tensor.Bytes, l tensor.Layout, d tensor.DType) *op.Tensor {
	return &p.newObject(p.alloc(bytes), l, d).Tensor
}

// Alias implements op.Exec.
func (p *Player) Alias(t *op.Tensor, l tensor.Layout, d tensor.DType) *op.Tensor {
	return &p.newObject(Of(t).st, l, d).Tensor
}

// ViewOf implements op.Exec. A view refers to its base, that of a view to the
// base's base.
func (p *Player) ViewOf(t *op.Tensor, l tensor.Layout) *op.Tensor {
	base := Of(t)
	v := p.newObject(base.st, l, base.DType)
	v.base = base
	if base.base != nil {
		v.base = base.base
	}
	v.base.refs++
	v.version, v.returned = v.base.version, base.returned
	return &v.Tensor
}

// Keep implements op.Exec.
func (p *Player) Keep(t *op.Tensor) *op.Tensor {
	Of(t).refs++
	return t
}

// Drop implements op.Exec.
func (p *Player) Drop(ts ...*op.Tensor) {
	for _, t := range ts {
		if t != nil {
			p.Release(Of(t))
		}
	}
}

// Release gives up one reference to o. The last one takes with it the storage,
// then what autograd hangs on the tensor.
func (p *Player) Release(o *Object) {
	o.refs--
	if o.refs > 0 {
		return
	}
	if o.refs < 0 {
		panic("engine: a tensor was dropped twice")
	}
	// c10::TensorImpl::release_resources: the autograd meta data goes first,
	// then the storage.
	fn, grad, base := o.fn, o.Grad, o.base
	o.fn, o.Grad, o.base = nil, nil, nil
	if grad != nil {
		p.Release(grad)
	}
	if fn != nil {
		p.dropNode(fn)
	}
	if base != nil {
		p.Release(base)
	}
	p.dropStorage(o.st)
	*o = Object{}
	p.objects.Put(o)
}

func (p *Player) dropStorage(st *storage) {
	st.refs--
	if st.refs > 0 {
		return
	}
	if st.id > 0 {
		p.freeBlock(st)
	}
	*st = storage{}
	p.storages.Put(st)
}

// alloc asks for a block; zero bytes are none.
func (p *Player) alloc(n tensor.Bytes) *storage {
	st := p.storages.Get(p.Meter)
	st.host = p.onHost
	if n > 0 {
		p.allocBlock(st, n)
	}
	return st
}

// allocBlock gives a storage that has none a block of n bytes.
func (p *Player) allocBlock(st *storage, n tensor.Bytes) {
	if st.host {
		p.allocHost(st, n)
		return
	}
	p.nextID++
	p.count(&p.live, n)
	st.id, st.bytes, st.layer = p.nextID, n, p.Layer
	p.tr.Categories = append(p.tr.Categories, trace.Temporaries)
	if len(p.births) > 0 {
		p.births = append(p.births, st)
	}
	p.emit(trace.Alloc, st.id, n)
	if p.backend != nil {
		p.Must(p.backend.Alloc(st.id, n, p.stream))
	}
}

func (p *Player) freeBlock(st *storage) {
	if st.host {
		p.freeHost(st)
		return
	}
	p.live -= st.bytes
	p.emit(trace.Free, st.id, 0)
	if p.backend != nil {
		p.Must(p.backend.Free(st.id))
	}
	if st.saved {
		p.saved.add(st.layer, -st.bytes)
	}
}

// EmptyStorage frees the block of a storage that stays (resize_storage_bytes_ to 0).
func (p *Player) EmptyStorage(t *op.Tensor) {
	if st := Of(t).st; st.id != 0 {
		p.freeBlock(st)
		st.id, st.bytes, st.saved = 0, 0, false
	}
}

// FillStorage gives a storage that has no block one of n bytes.
func (p *Player) FillStorage(t *op.Tensor, n tensor.Bytes) {
	if st := Of(t).st; st.id == 0 {
		p.allocBlock(st, n)
	}
}

// MoveInto makes t a tensor over the storage of another (Tensor.set_).
func (p *Player) MoveInto(t, of *op.Tensor, l tensor.Layout) {
	o, st := Of(t), Of(of).st
	old := o.st
	o.st, o.Layout = st, l
	st.refs++
	p.dropStorage(old)
}

// SetData makes t a tensor over the storage of another, as t.data = ... does: what autograd
// knows of t, and how often it was modified, stays. Where the other has another type, or is on
// another device, the next graph gets an AccumulateGrad node of its own
// (VariableHooks::set_data in torch/csrc/autograd/variable.cpp). The caller sets t's type.
func (p *Player) SetData(t, of *op.Tensor, l tensor.Layout) {
	if t.DType != of.DType || OnHost(t) != OnHost(of) {
		Of(t).acc = nil
	}
	Of(of).st.version = Of(t).st.version
	p.MoveInto(t, of, l)
}

// SameStorage reports whether two tensors share their memory.
func SameStorage(a, b *op.Tensor) bool { return Of(a).st == Of(b).st }

// StorageBytes is the size of the block that t lies in.
func StorageBytes(t *op.Tensor) tensor.Bytes { return Of(t).st.bytes }

// OnHost reports whether t is in host memory.
func OnHost(t *op.Tensor) bool { return Of(t).st.host }

// InHostMemory implements op.Exec.
func (p *Player) InHostMemory(t *op.Tensor) bool { return OnHost(t) }

// Block is the number of t's memory on its device.
func Block(t *op.Tensor) int32 { return Of(t).st.id }

// BlockBytes is the size of t's memory.
func BlockBytes(t *op.Tensor) tensor.Bytes { return Of(t).st.bytes }

// Sharers is the number of tensors over t's memory.
func Sharers(t *op.Tensor) int32 { return Of(t).st.refs }

// Origin is what SetOrigin says that the memory of t is a copy of, nil of others.
func Origin(t *op.Tensor) any { return Of(t).st.from }

// SetOrigin notes that the memory of t is a copy of something.
func SetOrigin(t *op.Tensor, from any) { Of(t).st.from = from }

func (p *Player) emit(k trace.Kind, id int32, n tensor.Bytes) {
	p.tr.Events = p.appendEvent(p.tr.Events, p.event(k, id, n))
}

// appendEvent appends an event. Where there is no room it doubles it: there are millions of
// events, and append would grow by a quarter only and so copy each four times.
func (p *Player) appendEvent(events []trace.Event, e trace.Event) []trace.Event {
	p.Meter.Hold(trace.EventBytes)
	if n := len(events); n == cap(events) {
		events = slices.Grow(events, n+1)
	}
	return append(events, e)
}

// maxLive bounds the sum of all blocks that live at one time, such that sums of
// parts of them stay within their type.
const maxLive = 1 << 62

// count adds a block to a sum of live ones.
func (p *Player) count(sum *tensor.Bytes, n tensor.Bytes) {
	if n > maxLive-*sum {
		p.Fail("tensors of more than 4 EiB live at one time; larger sums are not counted")
	}
	*sum += n
}

// event is an event of the present moment.
func (p *Player) event(k trace.Kind, id int32, n tensor.Bytes) trace.Event {
	phase := p.Phase
	if p.Evaluating {
		phase = trace.Eval
	}
	return trace.Event{Kind: k, ID: id, Bytes: n, Op: p.Op, Layer: p.Layer, Step: p.Step, Phase: phase, Stream: p.stream, Thread: p.thread}
}

// durable lists the categories from the most durable role to the least; a
// block keeps the most durable that it ever plays.
var durable = [trace.NumCategories]int{
	trace.Parameters: 6, trace.OptimizerState: 5, trace.Gradients: 4, trace.Workspace: 3, trace.Inputs: 2,
	trace.Activations: 1, trace.Temporaries: 0,
}

// Mark raises the category of t's block.
func (p *Player) Mark(t *op.Tensor, c trace.Category) {
	o := Of(t)
	categories := p.tr.Categories
	if o.st.host {
		categories = p.host.Categories
	}
	if id := o.st.id; id > 0 && durable[c] > durable[categories[id]] {
		categories[id] = c
	}
}

// Packed implements op.Exec. What lies in one storage that has room for all and no more
// is packed, in whichever order.
func (p *Player) Packed(n int64, ts ...*op.Tensor) bool {
	st := Of(ts[0]).st
	for _, t := range ts {
		if Of(t).st != st {
			return false
		}
	}
	return st.bytes == tensor.Bytes(n*ts[0].DType.Size())
}
