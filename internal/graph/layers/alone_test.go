package layers_test

import (
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/op"
)

// TestAlone: a layer that holds parameters, or whose arguments are inferred, says
// for which inputs it is made where nothing calls it.
func TestAlone(t *testing.T) {
	for _, name := range layers.Names() {
		l := layers.Lookup(name)
		inferred := slices.ContainsFunc(l.Sigs()[0].Params, func(p op.Param) bool { return p.Infer })
		if (inferred || len(l.Is.Init) > 0) && l.Alone == nil {
			t.Errorf("%s has no inputs for a module that nothing calls", name)
		}
	}
}
