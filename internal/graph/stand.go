package graph

import (
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/spec"
)

// stands are the layers of libraries that a block may stand for.
var stands = map[string]*nn.Layer{spec.StandsForConv1D: nn.Conv1D}

// standsFor makes a block's class the layer that the block stands for.
func (u *unit) standsFor(b *spec.Block) {
	if !b.StandsFor.Set {
		return
	}
	c := u.class
	if w, bias := u.shapes["weight"], u.shapes["bias"]; len(c.Params) != 2 || len(c.Children) > 0 || len(w) != 2 || len(bias) != 1 || bias[0] != w[1] {
		u.el.fail(b.StandsFor.At, "a block in place of %s has no modules and two parameters: weight of shape [inputs, outputs] and bias of shape [outputs]", b.StandsFor.V)
	}
	c.Layer = stands[b.StandsFor.V]
}
