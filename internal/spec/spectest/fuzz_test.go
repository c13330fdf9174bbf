//go:build unix

package spectest_test

import (
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec/spectest"
)

// FuzzMutants tries mutants of the specs of testdata; what the fuzzer changes is
// which spec and the choices of the mutator.
func FuzzMutants(f *testing.F) {
	needs.Time(f, "TestMutants tries some")
	b := newBreeder(f)
	for seed := range uint64(50) {
		f.Add(uint16(seed*73), seed, []byte{})
		f.Add(uint16(seed*31), seed, []byte{byte(seed), 1, 200, byte(7 * seed)})
	}
	f.Fuzz(func(t *testing.T, of uint16, seed uint64, choices []byte) {
		m := b.breed(int(of)%len(b.samples), spectest.Choices(choices, seed))
		if m == nil {
			return
		}
		if _, err := try(m, func() {}); err != nil {
			t.Errorf("mutant of %s: %v\n%s", b.samples[int(of)%len(b.samples)].name, err, m)
		}
	})
}
