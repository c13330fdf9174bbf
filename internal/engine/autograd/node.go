package autograd

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Node is one gradient function of the autograd graph.
type Node struct {
	row   *op.Op
	args  any
	seq   uint64 // creation order; the engine runs the most recent ready node first
	edges []edge // where the gradient of each input goes
	saved []saved
	inM   []op.Meta
	outM  []op.Meta
	refs  int32
	layer int32
	op    int32 // index of the name in the trace
	at    place // of the operator in the spec

	leaf     *Object     // of an AccumulateGrad node
	posthook func()      // of an AccumulateGrad node alone: HookAccumulate's
	slices   *copySlices // of an in-place operation on a view
	custom   Function    // of a function that has its own way with what it saved
	train    bool        // the operator ran in training mode
	stream   int16       // on which it ran, and its derivative does
	done     bool        // saved tensors were released
	wraps    bool        // its results are instances of a subclass of Tensor: none of their gradients is added to in place
	before   []func()    // Tensor.register_hook on its results
	after    []func()    // Node.register_hook while it runs

	// While a backward pass runs:
	task  int          // its number
	waits int          // how many gradients are still to come
	grads []*op.Tensor // the sum of those that came, for each result; empty before the first
}

// edge leads to input nr of fn; fn is nil where no gradient is wanted.
type edge struct {
	fn *Node
	nr int
}

// saved is a SavedVariable: a tensor, or what a pack hook made of it.
type saved struct {
	t      *op.Tensor
	packed Packed
	out    bool
	state  bool // the state of dropout: no input
	item   bool // of a list
	idx    int

	version int // that t's storage had
}

// seqAccumulate puts AccumulateGrad nodes before all others.
const seqAccumulate = math.MaxUint64

// graph is the state of autograd.
type graph struct {
	seq   [2]uint64 // of each thread
	casts castCache
	ready readyQueue // of the thread that runs backward passes
	tasks int        // how many there were
}

// newNode makes a node that nothing refers to yet.
func (p *Player) newNode(row *op.Op, args any, name int32, seq uint64) *Node {
	p.Meter.Work(nodeWork)
	n := p.nodes.Get(p.Meter)
	n.row, n.args, n.op, n.layer, n.at, n.seq = row, args, name, p.Layer, p.at, seq
	n.train, n.stream = p.Env().Training, p.stream
	return n
}

// recycle keeps a dead node, and the slices it has, for the next one.
func (p *Player) recycle(n *Node) {
	*n = Node{edges: n.edges[:0], saved: n.saved[:0], inM: n.inM[:0], outM: n.outM[:0], grads: n.grads[:0]}
	p.nodes.Put(n)
}

// gradEdge returns the edge to o's gradient function, made if need be, with a
// reference for the caller. o must require grad.
func (p *Player) gradEdge(o *Object) edge {
	if fn := p.gradFn(o); fn != nil {
		fn.refs++
		return edge{fn, o.nr}
	}
	if o.acc == nil {
		o.refs++ // the node holds the variable
		o.acc = p.newNode(nil, nil, p.names.op("AccumulateGrad"), seqAccumulate)
		o.acc.leaf = o
		o.acc.outM = append(o.acc.outM, metaOf(o))
	}
	o.acc.refs++
	return edge{o.acc, 0}
}

func metaOf(o *Object) op.Meta { return op.Meta{Layout: o.Layout, DType: o.DType} }

// edge is the input whose edge is the k-th in PyTorch's order.
func (n *Node) edge(k int) int {
	if n.row == nil {
		return k
	}
	return n.row.Edge(k, len(n.edges))
}

// dropNode gives up one reference to n. A dying node releases its saved
// tensors; its successors that are destroyed with it follow from a stack, last in first
// out, as in torch/csrc/autograd/function.cpp (deleteNode).
func (p *Player) dropNode(n *Node) {
	n.refs--
	if n.refs > 0 {
		return
	}
	var room [8]*Node
	stack := append(room[:0], n)
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		p.releaseSaved(f)
		for k := range f.edges {
			i := f.edge(k)
			g := f.edges[i].fn
			f.edges[i].fn = nil
			if g == nil {
				continue
			}
			if g.refs--; g.refs == 0 {
				stack = append(stack, g)
			}
		}
		if l := f.leaf; l != nil {
			if f.leaf = nil; l.acc == f {
				l.acc = nil
			}
			p.Release(l)
		}
		if s := f.slices; s != nil {
			f.slices = nil
			p.dropSlices(s)
		}
		if c := f.custom; c != nil {
			f.custom = nil
			c.Release()
		}
		if c, ok := f.args.(context); ok {
			c.Release()
		}
		p.recycle(f)
	}
}

// releaseSaved drops the saved tensors in row order.
func (p *Player) releaseSaved(n *Node) {
	n.done = true
	for i := range n.saved {
		if t := n.saved[i].t; t != nil {
			n.saved[i].t = nil
			p.Drop(t)
		}
		if x := n.saved[i].packed; x != nil {
			n.saved[i].packed = nil
			x.Drop()
		}
	}
	if n.slices != nil && n.slices.fn != nil {
		fn := n.slices.fn
		n.slices.fn = nil
		p.dropNode(fn)
	}
}

// copySlices is the gradient of an in-place operation on a view: the node of
// the operation itself, applied to a slice of the base's gradient
// (torch/csrc/autograd/functions/tensor.cpp).
type copySlices struct {
	fn   *Node // of the operation
	base op.Meta
	view tensor.Layout
}

func (p *Player) dropSlices(s *copySlices) {
	if s.fn != nil {
		fn := s.fn
		s.fn = nil
		p.dropNode(fn)
	}
}

// The work in what a step of training is made of, beside the events: of an operator
// and of a node, made, run and given up.
const (
	opWork   = 5
	nodeWork = 10
)

// DetachInPlace is Tensor.detach_: t has no gradient function any more. Of a view it does nothing and
// returns false: PyTorch refuses it.
func (p *Player) DetachInPlace(t *op.Tensor) bool {
	o := Of(t)
	if o.base != nil {
		return false
	}
	fn := o.fn
	o.fn, o.nr, o.Requires = nil, 0, false
	if fn != nil {
		p.dropNode(fn)
	}
	return true
}
