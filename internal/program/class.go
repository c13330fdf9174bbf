package program

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/tensor"
)

// Kind is the class's name as reports show it: Linear for nn.Linear(...), the
// class's own name for those of the spec; "" of none. What a class is its Layer
// says.
func (c *Class) Kind() string {
	switch {
	case c == nil:
		return ""
	case c.Python == "":
		return c.Name
	}
	return c.Layer.Kind()
}

// IsBlock reports whether a class has no constructor: its statements are the
// spec's own, which a script prints.
func (c *Class) IsBlock() bool { return c.Python == "" }

// Is is what is known of a class beside its statements: nothing of most blocks.
func (c *Class) Is() nn.Layer {
	if c.Layer == nil {
		return nn.Layer{}
	}
	return *c.Layer
}

// OtherTypes lists c's own parameters and buffers that stay in another type when
// the model is converted to d.
func (c *Class) OtherTypes(d tensor.DType) []Param {
	var out []Param
	for _, list := range [][]Param{c.Params, c.Buffers} {
		for _, p := range list {
			if !p.Fixed && p.DType != d {
				out = append(out, p)
			}
		}
	}
	return out
}

// FindParam returns the parameter or buffer at a path from c, such as "weight"
// or "blocks.0.attn.weight"; nil if there is none.
func (c *Class) FindParam(path string) *Param {
	for _, list := range [][]Param{c.Params, c.Buffers} {
		for i := range list {
			if list[i].Name == path {
				return &list[i]
			}
		}
	}
	for _, ch := range c.Children {
		if rest, ok := strings.CutPrefix(path, ch.Path+"."); ok && ch.Class != nil {
			if p := ch.Class.FindParam(rest); p != nil {
				return p
			}
		}
	}
	return nil
}

// IsParameter reports whether path, from c, names a parameter rather than a
// buffer.
func (c *Class) IsParameter(path string) bool {
	for i := range c.Params {
		if c.Params[i].Name == path {
			return true
		}
	}
	for _, ch := range c.Children {
		if rest, ok := strings.CutPrefix(path, ch.Path+"."); ok && ch.Class != nil && ch.Class.IsParameter(rest) {
			return true
		}
	}
	return false
}

// Registered lists the children in the order in which PyTorch iterates over
// them: containers (the ModuleList behind "layers.0", "layers.1") hold their
// items together, at the place of the first.
func (c *Class) Registered() []int {
	all, contained := make([]int, len(c.Children)), false
	for i, ch := range c.Children {
		all[i] = i
		contained = contained || strings.Contains(ch.Path, ".")
	}
	if !contained {
		return all
	}
	parts := make([][]string, len(c.Children))
	for i, ch := range c.Children {
		parts[i] = strings.Split(ch.Path, ".")
	}
	return grouped(all, parts, 0)
}

// grouped orders children by their path component at depth, stable by first
// appearance, and recursively below.
func grouped(idx []int, parts [][]string, depth int) []int {
	if len(idx) < 2 {
		return idx
	}
	var keys []string
	groups := map[string][]int{}
	for _, i := range idx {
		k := ""
		if depth < len(parts[i]) {
			k = parts[i][depth]
		}
		if _, ok := groups[k]; !ok {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], i)
	}
	if len(keys) == len(idx) {
		return idx
	}
	var out []int
	for _, k := range keys {
		g := groups[k]
		if k != "" {
			g = grouped(g, parts, depth+1)
		}
		out = append(out, g...)
	}
	return out
}

// Members lists the names of c's attributes that hold parameters, buffers, other
// tensors and submodules.
func (c *Class) Members() []string {
	var out []string
	for _, list := range [][]Param{c.Params, c.Buffers, c.Attrs} {
		for _, p := range list {
			out = append(out, p.Name)
		}
	}
	for _, ch := range c.Children {
		name, _, _ := strings.Cut(ch.Path, ".")
		out = append(out, name)
	}
	return out
}

// Child is the index of the child at an attribute path, -1 if there is none.
func (c *Class) Child(path string) int {
	return slices.IndexFunc(c.Children, func(ch Child) bool { return ch.Path == path })
}
