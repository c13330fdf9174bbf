package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Kind says how a kernel goes over its operands.
type Kind uint8

// The kinds.
const (
	Map    Kind = iota // element by element
	Reduce             // sums, and the like, over the dimensions in which the result has stride 0
	Other              // as the kernel's comment says
)

// Kernel is one row of the table.
type Kernel struct {
	Name    string
	Kind    Kind
	Tensors []string // what is written first; optional ones end in "?"
	Outputs int      // how many are written
	Ints    []string
	Floats  []string
	Formula Formula // what is computed, of kernels that are defined by it
	index   int
}

// Tensor is an operand.
type Tensor struct {
	At     uint64 // address of the element at index 0; 0: absent
	DType  tensor.DType
	Size   tensor.Dims
	Stride tensor.Dims // in elements
}

// Absent reports whether an optional operand is not there.
func (t *Tensor) Absent() bool { return t.At == 0 }

// Numel is the number of elements.
func (t *Tensor) Numel() int64 { return t.Size.Numel() }

// Call is one run of a kernel.
type Call struct {
	Kernel *Kernel
	T      []Tensor
	I      []int64
	F      []float64
}

// Writes reports whether a kernel writes an operand: the first ones, and the
// running statistics of batch_norm.
func (k *Kernel) Writes(operand int) bool {
	return operand < k.Outputs || strings.HasPrefix(k.Tensors[operand], "running_")
}

// Index is the kernel's place in All; -1 for one that a formula defines.
func (k *Kernel) Index() int { return k.index }

// Check reports a call that does not fit its kernel: a mistake of the program.
func (c *Call) Check() error {
	k := c.Kernel
	if len(c.T) != len(k.Tensors) || len(c.I) != len(k.Ints) || len(c.F) != len(k.Floats) {
		return fmt.Errorf("kernel %s takes %d tensors, %d integers and %d numbers, not %d, %d and %d",
			k.Name, len(k.Tensors), len(k.Ints), len(k.Floats), len(c.T), len(c.I), len(c.F))
	}
	for i := range c.T {
		t := &c.T[i]
		switch optional := strings.HasSuffix(k.Tensors[i], "?"); {
		case t.Absent() && !optional && t.Numel() > 0:
			return fmt.Errorf("kernel %s: operand %s is absent", k.Name, k.Tensors[i])
		case k.Kind != Other && !t.Absent() && t.Size != c.T[0].Size:
			return fmt.Errorf("kernel %s: operand %s has shape %v, not %v", k.Name, k.Tensors[i], t.Size, c.T[0].Size)
		}
	}
	return nil
}

var (
	formulas []*Kernel
	byName   = map[string]*Kernel{}
)

func define(k Kernel) *Kernel {
	p := &k
	if p.Outputs == 0 {
		p.Outputs = 1
	}
	byName[k.Name] = p
	return p
}

// All lists the kernels in the order of their numbers, then those that formulas define, by
// name: of optimizers, those of package optim.
func All() []*Kernel {
	byFormula := slices.SortedFunc(slices.Values(formulas), func(a, b *Kernel) int { return strings.Compare(a.Name, b.Name) })
	return slices.Concat(all, byFormula)
}

// Lookup returns the kernel of that name, or nil.
func Lookup(name string) *Kernel { return byName[name] }

// UnsupportedError says that a device cannot run a kernel on a type of numbers.
type UnsupportedError struct {
	Kernel *Kernel
	DType  tensor.DType
	Device string // "the CPU"
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("kernel %s does not run on %v on %s", e.Kernel.Name, e.DType, e.Device)
}
