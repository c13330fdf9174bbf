package graph

import (
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/spec"
)

// stands are the layers of libraries that a block may stand for.
var stands = map[string]*nn.Layer{spec.StandsForLinear: nn.LinearOf, spec.StandsForConv1D: nn.Conv1D}

// standsFor makes a block's class the layer that the block stands for.
func (u *unit) standsFor(b *spec.Block) {
	if !b.StandsFor.Set {
		return
	}
	c := u.class
	w, hasWeight := u.shapes["weight"]
	bias, hasBias := u.shapes["bias"]
	linear := b.StandsFor.V == spec.StandsForLinear
	shape, out := "[inputs, outputs] and bias of shape [outputs]", 1
	if linear {
		shape, out = "[outputs, inputs], and maybe bias of shape [outputs]", 0
	}
	params := 1
	if hasBias {
		params = 2
	}
	if !hasWeight || len(c.Params) != params || !hasBias && !linear || len(c.Children) > 0 || len(w) != 2 || hasBias && (len(bias) != 1 || bias[0] != w[out]) {
		u.el.fail(b.StandsFor.At, "a block in place of %s has no modules and these parameters alone: weight of shape %s", b.StandsFor.V, shape)
	}
	c.Layer = stands[b.StandsFor.V]
}
