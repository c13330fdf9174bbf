package program

import "github.com/memplan/memplan/internal/tensor"

// AsFloat64 makes every floating parameter, buffer and input of a job one of
// float64, with which gradients can be held against differences and rounding can
// be told from mistakes: no spec says so. A job in 16-bit types stays as it is.
func AsFloat64(prog *Job) {
	seen := map[*Class]bool{}
	var class func(c *Class)
	class = func(c *Class) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for _, list := range [][]Param{c.Params, c.Buffers, c.Attrs} {
			for i := range list {
				if list[i].DType == tensor.Float32 {
					list[i].DType = tensor.Float64
				}
			}
		}
		for _, ch := range c.Children {
			class(ch.Class)
		}
	}
	places := func(list []Place) {
		for _, p := range list {
			class(p.Class)
		}
	}
	for _, m := range prog.Models {
		class(m.Root)
		if m.Pruned != nil {
			places(m.Pruned.Layers)
		}
		if a := m.Adapters; a != nil {
			places(a.Layers)
			places(a.Saved)
			if a.DType == tensor.Float32 {
				a.DType = tensor.Float64
			}
		}
	}
	class(prog.Aux)
	inputs := func(list []Input) {
		for i := range list {
			if list[i].DType == tensor.Float32 {
				list[i].DType = tensor.Float64
			}
		}
	}
	inputs(prog.Inputs)
	if e := prog.Eval; e != nil {
		class(e.Aux)
		for _, s := range e.Sizes() {
			for _, c := range s.Models {
				class(c)
			}
			inputs(s.Inputs)
		}
	}
	prog.DType = tensor.Float64
}
