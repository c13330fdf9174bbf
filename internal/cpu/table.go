package cpu

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// float are the types that kernels compute in.
type float interface{ float32 | float64 }

// runner runs a call whose operands have been found in memory.
type runner func(l *launch) error

// launch is a call and the memory of its operands, from the element at index 0;
// nil: absent, or no elements.
type launch struct {
	call    *kernel.Call
	data    [][]byte
	strides [][tensor.MaxRank]int // 0 of an operand that is absent
}

func newLaunch(c *kernel.Call, data [][]byte) *launch {
	l := &launch{c, data, make([][tensor.MaxRank]int, len(c.T))}
	for i := range c.T {
		for d := range c.T[i].Stride.Len() {
			l.strides[i][d] = int(c.T[i].Stride.At(d))
		}
	}
	return l
}

// row says how a kernel runs for which type of one of its operands.
type row struct {
	decides int // which operand's
	run     map[tensor.DType]runner
	mixed   bool // operands may be of several types
	wholes  bool // those that are not floating may be
}

// rows is the table of what runs.
var rows = map[*kernel.Kernel]row{}

func init() {
	for _, t := range []map[*kernel.Kernel]row{copyRows, unaryRows, gradRows, binaryRows, compareRows, placeRows, reduceRows, gemmRows,
		softmaxRows, layerRows, batchRows, groupRows, convRows, poolRows, averageRows, resampleRows, lookupRows, alongRows, lossRows, attentionRows, optimizerRows} {
		for k, r := range t {
			rows[k] = r
		}
	}
}

// rowOf is a kernel's row.
func rowOf(k *kernel.Kernel) row {
	if k.Formula != nil {
		return formulaRow
	}
	return rows[k]
}

// floats is a row of a kernel for floating numbers.
func floats(single, double runner) row {
	return row{run: map[tensor.DType]runner{tensor.Float32: single, tensor.Float64: double}}
}

// decidedBy is the row of a kernel whose first operand may be absent or of
// another type than what it computes with.
func (r row) decidedBy(operand int) row {
	r.decides = operand
	return r
}

// everyType are all types.
var everyType = []tensor.DType{tensor.Uint8, tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64,
	tensor.Float16, tensor.Float32, tensor.Float64, tensor.Bool, tensor.BFloat16}

// everything is a row of a kernel that is the same for all types.
func everything(decides int, mixed bool, run runner) row {
	r := row{decides: decides, mixed: mixed, run: map[tensor.DType]runner{}}
	for _, d := range everyType {
		r.run[d] = run
	}
	return r
}

// fixed are the types of operands that have one whatever others have.
var fixed = map[string]tensor.DType{"mask": tensor.Bool, "index": tensor.Int64, "target": tensor.Int64,
	"offs": tensor.Int32, "first": tensor.Int64, "second": tensor.Int64, "offsets": tensor.Int64, "bag": tensor.Int64, "count": tensor.Int64}

// checkTypes refuses operands of types that a kernel does not take together.
func (r *row) checkTypes(c *kernel.Call) error {
	if r.mixed {
		return nil
	}
	t := c.T[r.decides].DType
	for i := range c.T {
		name, have := strings.TrimSuffix(c.Kernel.Tensors[i], "?"), c.T[i].DType
		want, ok := fixed[name]
		switch {
		case c.T[i].Absent():
		case ok && have == want:
		case ok && !strings.HasPrefix(c.Kernel.Name, "attention"), have != t && (!r.wholes || t.IsFloating() || have.IsFloating()):
			if !ok {
				want = t
			}
			return fmt.Errorf("operand %s is of type %v, not %v", name, have, want)
		}
	}
	return nil
}

// wrongRank says that an operand has not as many dimensions as it must.
func (l *launch) wrongRank(operand, want int) error {
	return fmt.Errorf("operand %s has shape %v, not %d dimensions", l.call.Kernel.Tensors[operand], l.call.T[operand].Size, want)
}

// shape fails if an operand that is there has other sizes.
func (l *launch) shape(operand int, want ...int) error {
	t := &l.call.T[operand]
	same := t.Size.Len() == len(want)
	for d := 0; same && d < len(want); d++ {
		same = int(t.Size.At(d)) == want[d]
	}
	if same || t.Absent() && strings.HasSuffix(l.call.Kernel.Tensors[operand], "?") {
		return nil
	}
	return fmt.Errorf("operand %s has shape %v, not %v", l.call.Kernel.Tensors[operand], t.Size, want)
}

// first is the first of some errors.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// view is the memory of an operand as elements.
func view[T any](l *launch, i int) []T {
	data := l.data[i]
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), len(data)/int(unsafe.Sizeof(*new(T))))
}

// size is a dimension of an operand.
func (l *launch) size(operand, dim int) int { return int(l.call.T[operand].Size.At(dim)) }

// stride is that of a dimension of an operand; 0 of one that is absent.
func (l *launch) stride(operand, dim int) int { return l.strides[operand][dim] }

// has reports whether an optional operand is there.
func (l *launch) has(operand int) bool { return !l.call.T[operand].Absent() }
