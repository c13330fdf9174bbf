package op

import "github.com/memplan/memplan/internal/tensor"

// Kernel is a kernel whose scratch goes by a rule of its own, in steps, rather than
// with the sizes of its operands.
type Kernel struct {
	Rule         *KernelRule
	In           tensor.Layout // of its operand
	DType, Index tensor.DType
	Reduced      uint16 // dimensions, as bits
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
}

// Blocks are what the kernel allocates and frees, in order. What it does not free is
// its result.
func (k *Kernel) Blocks(env *Env) []Block {
	x := &blocks{Shapes: Shapes{E: *env}, list: make([]Block, 0, 16)}
	k.Rule.Run(&Call{Exec: x}, k)
	return x.list
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

// blocks is an Exec that writes down what is allocated and freed.
type blocks struct {
	Shapes
	list []Block
	born int
}

// New implements Exec.
func (b *blocks) New(l tensor.Layout, d tensor.DType) *Tensor {
	t := b.Shapes.New(l, d)
	t.Aux = b.born
	b.list = append(b.list, Block{b.born, tensor.Bytes(l.StorageElems() * d.Size())})
	b.born++
	return t
}

// Drop implements Exec.
func (b *blocks) Drop(ts ...*Tensor) {
	for _, t := range ts {
		if t != nil {
			b.list = append(b.list, Block{t.Aux.(int), -1})
		}
	}
}
