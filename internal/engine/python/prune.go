package python

import "github.com/memplan/memplan/internal/program"

// Prune puts masked layers in the place of others, before the model is moved to
// the device: what is left of their parameters stays, the weight is now
// weight_orig.
func (p *Interp) Prune(root *Module, z *program.Pruning) {
	if z == nil {
		return
	}
	for _, place := range z.Layers {
		old, m := p.put(root, place)
		copy(m.Params, old.Params[1:])
		copy(m.Buffers, old.Buffers)
	}
}

// masks reports whether m or a module in it computes its weight in a forward
// pre-hook.
func (m *Module) masks() bool {
	if len(m.attrs) > 0 {
		return true
	}
	for _, ch := range m.Children {
		if ch.masks() {
			return true
		}
	}
	return false
}
