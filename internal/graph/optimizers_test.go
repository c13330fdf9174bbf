package graph

import (
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/spec"
)

// TestClosures holds what package spec knows of optimizers against their table.
func TestClosures(t *testing.T) {
	for _, n := range optim.Names() {
		if listed := slices.Contains(spec.Closures, n); listed != optim.Lookup(n).Closure {
			t.Errorf("%s: spec.Closures says %v", n, listed)
		}
	}
}
