package cpu

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/needs"
	_ "github.com/memplan/memplan/internal/optim" // its formulas
	"github.com/memplan/memplan/internal/tensor"
)

// source is a source of random numbers that a test's name and a number choose.
func source(t *testing.T, n int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
}

// TestRandom runs calls of every kernel, drawn at random, and compares with
// what they must give.
func TestRandom(t *testing.T) {
	cases := 25
	if testing.Short() {
		cases = 8
	}
	if needs.Race {
		cases = 3
	}
	for _, k := range kernel.All() {
		for _, dtype := range []tensor.DType{tensor.Float32, tensor.Float64} {
			t.Run(k.Name+"/"+dtype.String(), func(t *testing.T) {
				t.Parallel()
				d := New(0)
				for seed := range cases {
					c := kerneltest.Random(k, dtype, source(t, seed), 4096)
					got, err := c.Run(d)
					if err == nil {
						err = c.Compare(got)
					}
					if err != nil {
						t.Fatalf("case %d: %v: %v", seed, c, err)
					}
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
