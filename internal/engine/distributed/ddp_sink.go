package distributed

import (
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
)

// unreached lists the parameters that no gradient function of v leads to.
func (r *Reducer) unreached(v python.Value) []int {
	var from, leaves []*op.Tensor
	each(v, func(t *op.Tensor) { from = append(from, t) })
	for _, c := range r.params {
		leaves = append(leaves, c.T)
	}
	return r.p.Unreached(from, leaves)
}

// each calls f for each tensor of a value.
func each(v python.Value, f func(t *op.Tensor)) {
	if v.T != nil {
		f(v.T)
	}
	if v.List != nil {
		for _, it := range v.List.Items {
			each(it, f)
		}
	}
}

// ddpSink is _DDPSink, an autograd function that clones the results of a model.
var ddpSink = &op.Op{
	Name: "_DDPSink", Node: "_DDPSinkBackward",
	Run: func(c *op.Call) {
		for _, t := range c.In {
			c.Return(c.New(t.LikeDense(), t.DType))
		}
	},
	Grad: func(b *op.Back) {
		b.Args.(*Reducer).delay()
		for i, g := range b.Grads {
			if g != nil {
				b.Set(i, b.Keep(g))
			}
		}
	},
}

// sink passes the tensors of v through ddpSink. Those that have no gradient
// function come back themselves.
func (r *Reducer) sink(v python.Value) python.Value {
	var ins []*op.Tensor
	each(v, func(t *op.Tensor) { ins = append(ins, t) })
	if len(ins) == 0 {
		return v
	}
	outs := r.p.Do(ddpSink, r, ins...)
	k := 0
	var replace func(v python.Value) python.Value
	replace = func(v python.Value) python.Value {
		switch {
		case v.T != nil:
			t := outs[k]
			k++
			if !r.p.Derived(v.T) {
				r.p.Drop(t)
				return r.p.Hold(v)
			}
			return python.Value{T: t}
		case v.List != nil:
			l := python.NewList(make([]python.Value, len(v.List.Items)))
			for i, it := range v.List.Items {
				l.Items[i] = replace(it)
			}
			return python.Value{List: l}
		}
		return v
	}
	out := replace(v)
	r.p.LetGo(v)
	return out
}
