package main

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/accuracy"
)

// TestNames holds what names mean against the sizes that random programs say: each
// name is the value that it was given to, a result without a name while it is
// the previous value, or refused.
func TestNames(t *testing.T) {
	refused := 0
	for seed := uint64(1); seed <= 400; seed++ {
		for _, careless := range []bool{false, true} {
			text, arch := namedJob(newGenerator(seed), seed, careless)
			_, _, _, err := build(&accuracy.FuzzCase{Name: "names", Arch: arch, Spec: text})
			switch {
			case err == nil:
			case careless && strings.Contains(err.Error(), "may mean two values"):
				refused++
			default:
				t.Fatalf("seed %d: %v\n%s", seed, err, text)
			}
		}
	}
	if refused < 200 {
		t.Errorf("only %d careless programs are refused", refused)
	}
}
