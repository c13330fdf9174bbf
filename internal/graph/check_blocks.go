package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/spec"
)

// define notes blocks that entries may call, with the modules that they declare.
func (c *checker) define(blocks []*spec.Named[spec.Block]) {
	if c.blocks == nil {
		c.blocks, c.modules = map[string]*spec.Block{}, map[string]bool{}
	}
	for _, b := range blocks {
		c.declare(b.V.Modules)
		c.blocks[b.Name.V] = b.V
	}
}

// declare collects the names of a modules section.
func (c *checker) declare(ms spec.Modules) {
	for _, e := range ms {
		if e.Module != nil {
			c.modules[e.Module.Str] = true
		}
	}
}

// block checks a block, whose calls give nothing known if there are mistakes in it
// beside its entries.
func (c *checker) block(b *spec.Named[spec.Block]) {
	if c.el.errs.Contained(func() { c.frame(b) }) {
		c.el.badBlocks[b.V] = true
	}
	c.entries(b.V.Modules, inModules)
	at := inLayers
	if b.V.Kind.V == spec.KindFunction {
		at = inFunction
	}
	c.entries(b.V.Layers, at)
}

// frame checks a block without its entries.
func (c *checker) frame(b *spec.Named[spec.Block]) {
	errs := c.el.errs
	if b.V.Kind.V == spec.KindFunction {
		c.el.attribute("function", b.Name.V, b.Name.At)
	}
	if layers.Lookup(b.Name.V) != nil {
		errs.Addf(b.Name.At, "block %q has the name of a layer", b.Name.V)
	}
	seen := map[string]bool{}
	for _, in := range b.V.Inputs {
		switch {
		case !spec.IsName(in.V):
			errs.Addf(in.At, "name must be a Python identifier, not %q", in.V)
		case seen[in.V]:
			errs.Addf(in.At, "input %q is named twice", in.V)
		}
		seen[in.V] = true
	}
	c.keywords(b)
	if b.V.Kind.V != spec.KindModule {
		own := "function %q cannot have modules, parameters or buffers of its own; it uses those of the block that calls it"
		if b.V.Kind.V == spec.KindAutograd {
			own = "autograd function %q cannot have modules, parameters or buffers; pass what it needs in inputs"
		}
		switch {
		case len(b.V.Modules) > 0:
			errs.Addf(b.V.Modules[0].At, own, b.Name.V)
		case len(b.V.Parameters) > 0:
			errs.Addf(b.V.Parameters[0].Name.At, own, b.Name.V)
		case len(b.V.Buffers) > 0:
			errs.Addf(b.V.Buffers[0].Name.At, own, b.Name.V)
		case b.V.StandsFor.Set:
			errs.Addf(b.V.StandsFor.At, "stands_for is for blocks with kind: module; block %q has another kind", b.Name.V)
		}
	}
	if b.V.Layers == nil && errs.Err() == nil {
		errs.Addf(b.Name.At, "block %q needs layers", b.Name.V)
	}
	c.autograd(b)
	if p := b.V.Params; p != nil && p.Kind != spec.Map && p.Kind != spec.Null {
		errs.Addf(p.Span, "params is a mapping from names to defaults, such as {width: 64}")
	} else if p != nil {
		for _, pair := range p.Pairs {
			if !spec.IsVariable(pair.Key.Str) {
				errs.Addf(pair.Key.Span, "name must be an identifier that is no keyword of Python, not %q", pair.Key.Str)
			}
		}
	}
	c.parameters(b.V.Parameters, b.V.Buffers)
}

// autograd checks what a block says of its backward.
func (c *checker) autograd(b *spec.Named[spec.Block]) {
	errs := c.el.errs
	if b.V.Kind.V != spec.KindAutograd {
		const only = "%[2]s is for blocks with kind: autograd; block %[1]q has another kind"
		if b.V.Backward.Set {
			errs.Addf(b.V.Backward.At, only, b.Name.V, "backward")
		}
		if len(b.V.Save) > 0 {
			errs.Addf(b.V.Save[0].At, only, b.Name.V, "save")
		}
		if len(b.V.Keep) > 0 {
			errs.Addf(b.V.Keep[0].At, only, b.Name.V, "keep")
		}
		return
	}
	var functions []string
	for _, name := range sorted(keys(c.blocks)) {
		if c.blocks[name].Kind.V == spec.KindFunction {
			functions = append(functions, name)
		}
	}
	switch {
	case !b.V.Backward.Set:
		errs.Addf(b.Name.At, "block %q of kind autograd needs backward, the name of a function that computes its gradients", b.Name.V)
	case !slices.Contains(functions, b.V.Backward.V):
		errs.Unknown(b.V.Backward.At, "function", b.V.Backward.V, functions)
	}
}

// keywords checks which inputs of a block are keywords.
func (c *checker) keywords(b *spec.Named[spec.Block]) {
	ks := b.V.Keywords
	if len(ks) == 0 {
		return
	}
	if b.V.Kind.V != spec.KindModule {
		c.el.errs.Addf(ks[0].At, "keywords are of modules; a function takes its inputs by position")
		return
	}
	n := len(b.V.Inputs) - len(ks)
	for i, k := range ks {
		if n < 1 || b.V.Inputs[n+i].V != k.V {
			c.el.errs.Addf(k.At, "keywords are the last of the inputs, in their order, and not all of them")
			return
		}
	}
}

func (c *checker) parameters(params, buffers []*spec.Named[spec.Param]) {
	seen := map[string]bool{}
	for i, list := range [][]*spec.Named[spec.Param]{params, buffers} {
		for _, p := range list {
			if seen[p.Name.V] {
				c.el.errs.Addf(p.Name.At, "parameter or buffer %q is declared twice", p.Name.V)
			}
			seen[p.Name.V] = true
			c.el.attribute([]string{"parameter", "buffer"}[i], p.Name.V, p.Name.At)
			spec.Try(func() {
				if d := c.el.errs.DType(p.V.DType); i == 0 && !d.IsFloating() {
					c.el.fail(p.V.DType.At, "a parameter needs a floating-point type, not %v; declare a buffer", d)
				}
			})
		}
	}
}
