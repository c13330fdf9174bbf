package op

import "github.com/memplan/memplan/internal/tensor"

// Kernel is a kernel whose scratch goes by a rule of its own, in steps, rather than
// with the sizes of its operands.
type Kernel struct {
	Rule         *KernelRule
	In           tensor.Layout // of its operand
	DType, Index tensor.DType
	Reduced      uint16 // dimensions, as bits; of attention, what else decides
	AccSize, VT0 int64  // bytes of an accumulator, elements that a thread reads
}

// KernelRule is what kernels of one kind do to memory.
type KernelRule struct {
	Run func(c *Call, k *Kernel)
}

// Block is what a kernel does to memory: it allocates a block or, where Bytes is
// negative, frees one. Blocks are counted from 0 by their birth.
type Block struct {
	Number int
	Bytes  tensor.Bytes
	Stays  bool // of one that is allocated: it is not freed, but the kernel's result
}

// Blocks writes down what kernels allocate and free, one after another in the same
// room.
type Blocks struct {
	Shapes
	call  Call
	list  []Block
	first int       // of the kernel at work, in the list
	at    []int     // where its blocks are born, in the list
	room  []*Tensor // as many as a kernel ever had
}

// NewBlocks writes for a machine.
func NewBlocks(env *Env) *Blocks {
	b := &Blocks{Shapes: Shapes{E: *env}}
	b.call.Exec = b
	return b
}

// Reset forgets what was written.
func (b *Blocks) Reset() { b.list = b.list[:0] }

// Of is what a kernel allocates and frees, in order, up to the next Reset.
func (b *Blocks) Of(k *Kernel) []Block {
	b.first, b.at = len(b.list), b.at[:0]
	b.call.locals = b.call.locals[:0]
	k.Rule.Run(&b.call, k)
	return b.list[b.first:len(b.list):len(b.list)]
}

// KernelThrough is the kernel at k that is like those at some places but for the
// layouts of their operands, which lie on curves; false if there is none.
func KernelThrough(p tensor.Places, k int64, ks []Kernel) (Kernel, bool) {
	var ins [3]tensor.Layout
	x, same, alike := ks[0], true, true
	for i := range ks {
		ins[i] = ks[i].In
		same = same && ks[i] == x
		y := ks[i]
		y.In = x.In
		alike = alike && y == x
	}
	if same {
		return x, true
	}
	var ok bool
	x.In, ok = p.Through(k, ins[:len(ks)]...)
	return x, ok && alike
}

// New implements Exec.
func (b *Blocks) New(l tensor.Layout, d tensor.DType) *Tensor {
	b.checkSize(l, d)
	n := len(b.at)
	if n == len(b.room) {
		b.room = append(b.room, new(Tensor))
	}
	t := b.room[n]
	*t = Tensor{Layout: l, DType: d, Aux: n}
	b.at = append(b.at, len(b.list))
	b.list = append(b.list, Block{n, tensor.Bytes(l.StorageElems() * d.Size()), true})
	return t
}

// Drop implements Exec.
func (b *Blocks) Drop(ts ...*Tensor) {
	for _, t := range ts {
		if t != nil {
			n := t.Aux.(int)
			b.list[b.at[n]].Stays = false
			b.list = append(b.list, Block{Number: n, Bytes: -1})
		}
	}
}
