package kerneltest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	_ "github.com/memplan/memplan/internal/optim" // its formulas
	"github.com/memplan/memplan/internal/tensor"
)

// fake is a device whose kernels write what the case expects, but for an error
// in one element.
type fake struct {
	memory  []byte
	c       *Case
	operand int // that is wrong
	touch   bool
}

const base = 1 << 20

func (f *fake) Malloc(n tensor.Bytes) (allocsim.Address, error) {
	f.memory = make([]byte, n)
	return base, nil
}
func (f *fake) Free(allocsim.Address, tensor.Bytes) error { return nil }
func (f *fake) Write(to allocsim.Address, from []byte) error {
	copy(f.memory[to-base:], from)
	return nil
}
func (f *fake) Read(to []byte, from allocsim.Address) error {
	copy(to, f.memory[from-base:])
	return nil
}
func (f *fake) Synchronize() error { return nil }

func (f *fake) Launch(c *kernel.Call) error {
	want := f.c.expect()
	for i := range c.T {
		if f.c.T[i].Absent() || !c.Kernel.Writes(i) {
			continue
		}
		a := f.c.result(i, f.c.T[i])
		a.Offset, a.Storage = 0, f.memory[c.T[i].At-base:]
		v := slices.Clone(want[i].v)
		if i == f.operand && len(v) > 0 {
			v[len(v)/2] = 2*v[len(v)/2] + 1e4
		}
		a.fill(v)
	}
	if f.touch {
		f.memory[len(f.memory)-1]++
	}
	return nil
}

// TestCompare checks that what is expected passes for every kernel, that a
// wrong element in any result does not, and that neither does a byte that is
// written beyond the operands.
func TestCompare(t *testing.T) {
	for _, k := range kernel.All() {
		for seed := range uint64(4) {
			c := Random(k, tensor.Float32, rand.New(rand.NewPCG(1, seed)), 200)
			run := func(f *fake) error {
				got, err := c.Run(f)
				if err != nil {
					return err
				}
				return c.Compare(got)
			}
			if err := run(&fake{c: c, operand: -1}); err != nil {
				t.Errorf("%v: %v", c, err)
			}
			if err := run(&fake{c: c, operand: -1, touch: true}); err == nil {
				t.Errorf("%v: a byte beyond the operands may be written", c)
			}
			want := c.expect()
			for i := range c.T {
				finite := k.Writes(i) && !c.T[i].Absent() && len(want[i].v) > 0 && near(want[i].v[len(want[i].v)/2], 0, 1e30)
				if !finite || c.T[i].DType == tensor.Bool {
					continue
				}
				if err := run(&fake{c: c, operand: i}); err == nil {
					t.Errorf("%v: operand %s may be wrong", c, k.Tensors[i])
				}
			}
		}
	}
}

// TestRandomRepeats checks that a case depends on the source alone.
func TestRandomRepeats(t *testing.T) {
	for _, k := range kernel.All() {
		a := Random(k, tensor.Float32, rand.New(rand.NewPCG(1, 2)), 500)
		b := Random(k, tensor.Float32, rand.New(rand.NewPCG(1, 2)), 500)
		if a.String() != b.String() || !slices.EqualFunc(a.T, b.T, func(x, y Array) bool { return slices.Equal(x.Storage, y.Storage) }) {
			t.Errorf("%v and %v", a, b)
		}
	}
}

// TestSizeOfNorms: rows may be long, but no operand has more elements than was asked
// for.
func TestSizeOfNorms(t *testing.T) {
	const size = 4096
	for _, k := range []*kernel.Kernel{kernel.LayerNorm, kernel.LayerNormGrad, kernel.RMSNorm, kernel.RMSNormGrad} {
		longest := int64(0)
		for seed := range uint64(300) {
			c := Random(k, tensor.Float32, rand.New(rand.NewPCG(seed, 1)), size)
			for i := range c.T {
				if n := c.T[i].Size.Numel(); n > size {
					t.Errorf("seed %d: operand %d of %v has %d elements", seed, i, c, n)
				}
				if size := c.T[i].Size; size.Len() > 0 {
					longest = max(longest, size.At(size.Len()-1))
				}
			}
		}
		if longest < size/2 {
			t.Errorf("%s: the longest row has %d elements", k.Name, longest)
		}
	}
}
