// Package programtest changes jobs for tests of what executes them.
package programtest

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// AsFloat64 makes every floating parameter, buffer and input of a job one of
// float64, with which gradients can be held against differences and rounding can
// be told from mistakes: no spec says so.
func AsFloat64(prog *program.Job) {
	seen := map[*program.Class]bool{}
	var class func(c *program.Class)
	class = func(c *program.Class) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for _, list := range [][]program.Param{c.Params, c.Buffers, c.Attrs} {
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
	places := func(list []program.Place) {
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
	inputs := func(list []program.Input) {
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
