package cpu

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// TestDeterminism runs calls that are large enough to be divided on one
// processor and on four, and expects the same bits.
func TestDeterminism(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	d := New(0)
	seeds := 3
	if needs.Race {
		seeds = 1
	}
	for _, k := range kernel.All() {
		for seed := range seeds {
			c := kerneltest.Random(k, tensor.Float32, source(t, seed), 1<<16)
			var results [2][]kerneltest.Array
			for i, processors := range []int{1, 4} {
				runtime.GOMAXPROCS(processors)
				got, err := c.Run(d)
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				results[i] = got
			}
			for i := range c.T {
				if !bytes.Equal(results[0][i].Storage, results[1][i].Storage) {
					t.Errorf("%v: operand %s differs", c, k.Tensors[i])
				}
			}
		}
	}
	// A sum that is divided although it has one result.
	a := of(tensor.Float32, []int64{100_000})
	for i := range 100_000 {
		a.v = append(a.v, float64(i%1000)*0.1)
	}
	want := 0.0
	for i, processors := range []int{1, 4} {
		runtime.GOMAXPROCS(processors)
		y := &operand{size: a.size, dtype: tensor.Float32, v: []float64{0}, kept: []int64{0}}
		host{t, d}.run(kernel.Sum, map[string]*operand{"y": y, "a": a}, numbers{nil, map[string]float64{"scale": 1}})
		if i == 0 {
			want = y.v[0]
		} else if y.v[0] != want {
			t.Errorf("sums %v and %v", want, y.v[0])
		}
	}
}
