package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// launch is one start of a function of the module. All have blocks of
// threads threads in one dimension, and parameters of 8 bytes each, as the
// binding passes them.
type launch struct {
	function string
	x, y     int64 // blocks
	args     args
}

const threads = 256

// args are the parameters of a function.
type args []uint64

func (a args) ints(v ...int64) args {
	for _, v := range v {
		a = append(a, uint64(v))
	}
	return a
}

// floats are parameters of type float.
func (a args) floats(v ...float64) args {
	for _, v := range v {
		a = append(a, uint64(math.Float32bits(float32(v))))
	}
	return a
}

// doubles are parameters of type double.
func (a args) doubles(v ...float64) args {
	for _, v := range v {
		a = append(a, math.Float64bits(v))
	}
	return a
}

// sizes are the parameters SIZES, or KEPT, of prelude.cuh; the first is the
// outermost.
func (a args) sizes(size []int64) args {
	return a.ints(int64(len(size)), numel(size)).dims(size)
}

// dims are tensor.MaxRank numbers, from the innermost on.
func (a args) dims(v []int64) args {
	for i := range tensor.MaxRank {
		x := int64(0)
		if i < len(v) {
			x = v[len(v)-1-i]
		}
		a = a.ints(x)
	}
	return a
}

// tensor are the parameters TENSOR with strides, of which the first is the
// outermost.
func (a args) tensor(t *kernel.Tensor, stride ...int64) args {
	return append(a, t.At, uint64(t.DType)).dims(stride)
}

// whole is a tensor with its own strides.
func (a args) whole(t *kernel.Tensor) args { return a.tensor(t, t.Stride.Slice()...) }

// tensors are operands that lie over the sizes of s.
func (a args) tensors(s shape, ts ...*kernel.Tensor) args {
	for i, t := range ts {
		a = a.tensor(t, s.stride[i]...)
	}
	return a
}

func numel(size []int64) int64 {
	n := int64(1)
	for _, v := range size {
		n *= v
	}
	return n
}

// shape is sizes with the strides of each operand over them. Dimensions of size 1
// are not in it, and those that lie together for all operands are one.
type shape struct {
	size   []int64
	stride [][]int64 // by operand
}

func newShape(operands int) shape { return shape{stride: make([][]int64, operands)} }

// add puts a dimension inside the others.
func (s *shape) add(size int64, stride ...int64) {
	if size == 1 {
		return
	}
	last := len(s.size) - 1
	merge := last >= 0
	for i := range stride {
		merge = merge && s.stride[i][last] == stride[i]*size
	}
	if merge {
		s.size[last] *= size
	} else {
		s.size = append(s.size, size)
	}
	for i := range stride {
		if merge {
			s.stride[i][last] = stride[i]
		} else {
			s.stride[i] = append(s.stride[i], stride[i])
		}
	}
}

// strides are those of operands along dimension d; 0 for absent ones.
func strides(d int, ts ...*kernel.Tensor) []int64 {
	out := make([]int64, len(ts))
	for i, t := range ts {
		if d < t.Stride.Len() {
			out[i] = t.Stride.At(d)
		}
	}
	return out
}

// over is the shape of the first rank dimensions of operands.
func over(rank int, ts ...*kernel.Tensor) shape {
	s := newShape(len(ts))
	for d := range rank {
		s.add(ts[0].Size.At(d), strides(d, ts...)...)
	}
	return s
}

// each is a launch with a thread for each of n elements.
func each(function string, n int64, a args) []launch {
	return []launch{{function, tensor.DivUp(n, threads), 1, a}}
}

// plan puts a call into launches.
func (g gpu) plan(c *kernel.Call) ([]launch, error) {
	p := planOf(c.Kernel)
	if p == nil {
		return nil, unsupported(c, "is not there")
	}
	if err := checkTypes(c); err != nil {
		return nil, err
	}
	ls, err := p(c, g)
	if err != nil {
		return nil, err
	}
	ls = slices.DeleteFunc(ls, func(l launch) bool { return l.x == 0 || l.y == 0 })
	for _, l := range ls {
		if l.x > math.MaxInt32 || l.y > math.MaxUint16 {
			return nil, unsupported(c, fmt.Sprintf("would need %d×%d blocks; a GPU allows %d×%d", l.x, l.y, math.MaxInt32, math.MaxUint16))
		}
	}
	return ls, nil
}

func unsupported(c *kernel.Call, what string) error {
	return fmt.Errorf("kernel %s on a GPU: %s", c.Kernel.Name, what)
}

// typed says which element types an operand may have, for those that are not of
// the floating types in which networks compute.
var typed = map[string]tensor.DType{"index": tensor.Int64, "target": tensor.Int64, "offs": tensor.Int32, "first": tensor.Int64, "second": tensor.Int64, "offsets": tensor.Int64, "bag": tensor.Int64, "count": tensor.Int64}

// checkTypes reports operands of types that the kernels do not know.
func checkTypes(c *kernel.Call) error {
	for i := range c.T {
		t, name := &c.T[i], c.Kernel.Tensors[i]
		want, special := typed[name]
		switch {
		case t.Absent() || anyType[c.Kernel]:
		case special && t.DType == want, !special && t.DType.IsFloating() && t.DType != tensor.Float64:
		case (name == "mask" || name == "mask?") && t.DType == tensor.Bool:
		default:
			return unsupported(c, fmt.Sprintf("operand %s of type %v is not computed there", name, t.DType))
		}
	}
	return nil
}

// planner puts calls of a kernel into launches, gpuPlanner those that are not the
// same for all GPUs.
type (
	planner    func(c *kernel.Call) ([]launch, error)
	gpuPlanner func(c *kernel.Call, g gpu) ([]launch, error)
)

// plans is the table.
var plans = map[*kernel.Kernel]gpuPlanner{}

// planOf is how a kernel is launched; nil if it is not there.
func planOf(k *kernel.Kernel) gpuPlanner {
	if k.Formula != nil {
		return func(c *kernel.Call, _ gpu) ([]launch, error) { return updates(c) }
	}
	return plans[k]
}

// anyType are kernels that look at types themselves.
var anyType = map[*kernel.Kernel]bool{}

func init() {
	for _, t := range []map[*kernel.Kernel]planner{mapPlans(), reducePlans, normPlans, imagePlans, lookupPlans, alongPlans} {
		for k, p := range t {
			plans[k] = func(c *kernel.Call, _ gpu) ([]launch, error) { return p(c) }
		}
	}
	for k := range alongPlans {
		anyType[k] = k != kernel.ScatterAdd
	}
	for _, t := range []map[*kernel.Kernel]gpuPlanner{productPlans, attentionPlans} {
		for k, p := range t {
			plans[k] = p
		}
	}
}

// tuning is what decides between launches that give the same numbers. Tests make
// it small.
var tuning = struct {
	enough   int64   // blocks that keep a GPU busy
	part     int64   // elements that one block reduces at least
	partOf   int64   // of the same, along columns
	depth    int64   // of a product, that one block has at least
	finish   float64 // multiplications in the time of another launch
	sum      float64 // and in that of an element of a part, written and read
	narrow   int64   // channels below which a convolution is not worth tiles
	scratch  int64   // cells of float
	scratchI int64   // cells of integers
}{enough: 256, part: 4096, partOf: 256, depth: 128, finish: 2e5, sum: 32, narrow: 16, scratch: 1 << 20, scratchI: 1 << 16}

// parts divides n elements so that blocks are enough, each part has at least
// least, and a result of each part and each of width columns fits into scratch.
func parts(n, blocks, least, width, scratch int64) (count, each int64) {
	count = max(1, min(tensor.DivUp(n, least), tensor.DivUp(2*tuning.enough, max(1, blocks)), scratch/max(1, width)))
	each = max(1, tensor.DivUp(n, count))
	return max(1, tensor.DivUp(n, each)), each
}
