package module

import (
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// BuildAlone makes a module that nothing calls, of its arguments alone; those that
// are otherwise inferred must be given. What holds neither parameters nor buffers
// has no forward then.
func (e *Env) BuildAlone(l *Layer, args map[string]any, given map[string]bool) *program.Class {
	b := e.begin(l, args, given)
	if l.Alone == nil {
		for _, name := range []string{"weight", "pos_weight"} { // buffers of losses
			if given[name] {
				b.Fail(name, "a loss with %s needs its inputs", name)
			}
		}
		b.Class.Forward, b.Class.Python = nil, constructor(l.sigs[0], b.Args, given)
		return b.Class
	}
	var ins []value.Value
	for i, t := range l.Alone(b) {
		ins = append(ins, value.Value{Expr: &program.Expr{Kind: program.Local, Slot: i}, Meta: value.Tensor(t)})
	}
	class, _ := e.Build(l, args, given, ins)
	return class
}

// Alone are inputs of those sizes for a module that nothing calls.
func (b *Builder) Alone(sizes ...[]int64) []*op.Tensor {
	out := make([]*op.Tensor, len(sizes))
	for i, s := range sizes {
		out[i] = &op.Tensor{Layout: tensor.Contiguous(tensor.D(s...)), DType: b.Env.Computed(b.DType())}
	}
	return out
}

// Size is an argument that is inferred where the module is called.
func (b *Builder) Size(name string) int64 {
	if !b.Given[name] {
		b.Fail(name, "%s is not given", name)
	}
	return b.Positive(name)
}

// Sizes is Size for a list.
func (b *Builder) Sizes(name string) []int64 {
	if !b.Given[name] {
		b.Fail(name, "%s is not given", name)
	}
	return b.Ints(name)
}
