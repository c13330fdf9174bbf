package engine

import "github.com/memplan/memplan/internal/op"

// unreached lists the parameters that no gradient function of v leads to.
func (r *reducer) unreached(v value) []int {
	var from, leaves []*op.Tensor
	each(v, func(t *op.Tensor) { from = append(from, t) })
	for _, c := range r.params {
		leaves = append(leaves, c.t)
	}
	return r.Player.unreached(from, leaves)
}

// each calls f for each tensor of a value.
func each(v value, f func(t *op.Tensor)) {
	if v.t != nil {
		f(v.t)
	}
	if v.list != nil {
		for _, it := range v.list.items {
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
		b.Args.(*reducer).delay()
		for i, g := range b.Grads {
			if g != nil {
				b.Set(i, b.Keep(g))
			}
		}
	},
}

// sink passes the tensors of v through ddpSink. Those that have no gradient
// function come back themselves.
func (r *reducer) sink(v value) value {
	var ins []*op.Tensor
	each(v, func(t *op.Tensor) { ins = append(ins, t) })
	if len(ins) == 0 {
		return v
	}
	outs := r.Do(ddpSink, r, ins...)
	k := 0
	var replace func(v value) value
	replace = func(v value) value {
		switch {
		case v.t != nil:
			t := outs[k]
			k++
			if !r.derived(v.t) {
				r.Drop(t)
				return r.hold(v)
			}
			return value{t: t}
		case v.list != nil:
			l := &list{refs: 1, items: make([]value, len(v.list.items))}
			for i, it := range v.list.items {
				l.items[i] = replace(it)
			}
			return value{list: l}
		}
		return v
	}
	out := replace(v)
	r.letGo(v)
	return out
}
