package techniques

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// fusedLayer is a linear layer with its adapter.
type fusedLayer struct {
	name    string
	class   *program.Class // of PEFT
	base    *program.Class
	in, out int64
	a, b    value.Value
}

// layer reads what is known of a layer with an adapter.
func (b *fusion) layer(name string, c *program.Class) *fusedLayer {
	l := &fusedLayer{name: name, class: c}
	for _, ch := range c.Children {
		switch ch.Path {
		case program.BaseLayer:
			l.base = ch.Class
			l.in, l.out = linearSize(ch.Class)
		case program.Magnitude:
			b.Fail("", "kernels with use_dora are not modelled")
		}
	}
	if isConv1D(l.base) || l.base.Quantized != nil && l.base.Quantized.Bits == 8 {
		b.Fail("", "Axolotl has no such kernels for %s", l.base.Describe())
	}
	down, up := c.Children[c.Child("lora_A")].Class.Params, c.Children[c.Child("lora_B")].Class.Params
	if len(up) > 1 {
		b.Fail("", "kernels with lora_bias are not modelled")
	}
	l.a, l.b = b.Own(name+".lora_A.weight", down[0].DType, down[0].Size), b.Own(name+".lora_B.weight", up[0].DType, up[0].Size)
	return l
}

// sequence is an input of the layer: sequences of vectors.
func (b *fusion) sequence(l *fusedLayer) value.Value {
	x := b.input(1, l.in)
	d := l.base.Params[0].DType
	if q := l.base.Quantized; q != nil {
		d = q.Source
	}
	x.Meta = value.Tensor(&op.Tensor{Layout: x.Meta.Tensor.Layout, DType: d})
	return x
}

// dropped is dropout of the input, one for all the layers that share it. The statement
// before it is that of eval mode, which returns without.
func (l *fusedLayer) dropped(f *module.Builder, x value.Value, apply func(x, dropped value.Value) []value.Value) []value.Value {
	drop := dropoutOf(l.class)
	if drop == nil {
		return apply(x, value.Value{})
	}
	f.Finish(apply(x, value.Value{})...)
	f.InEval(1)
	return apply(x, f.Let("X_drop", f.Do(drop.Row, drop.OpArgs, x)))
}

// weight is the weight of the layer itself, of the size of the linear layer's.
func (l *fusedLayer) weight(f *module.Builder) value.Value {
	w := l.base.FindParam("weight")
	own := f.Own(l.name+"."+program.BaseLayer+".weight", w.DType, w.Size)
	q := l.base.Quantized
	if q == nil {
		return own
	}
	absmax := l.base.Buffers[0]
	return f.Do(aten.DequantizeNF4, &aten.Dequantize4bitArgs{Out: q.Out, In: q.In, DType: q.Source, Double: q.Double},
		own, f.Own(l.name+"."+program.BaseLayer+".absmax", absmax.DType, absmax.Size))
}

// bias is the bias of the layer itself, if it has one.
func (l *fusedLayer) bias(f *module.Builder) value.Value {
	p := l.base.FindParam("bias")
	if p == nil {
		return value.Value{}
	}
	return f.Own(l.name+"."+program.BaseLayer+".bias", p.DType, p.Size)
}

func transpose(f *module.Builder, v value.Value) value.Value { return f.Do(aten.T, nil, v) }

func matmul(f *module.Builder, a, b value.Value) value.Value { return f.Do(aten.Matmul, nil, a, b) }

// rows is v.view(-1, n), or reshape.
func rows(f *module.Builder, row *op.Op, v value.Value) value.Value {
	n := v.Meta.Tensor.Dim(-1)
	return f.Do(row, &aten.ShapeArgs{Shape: []int64{-1, n}}, v)
}

// drop is del of a local variable.
func drop(f *module.Builder, v value.Value) {
	f.Emit(program.Stmt{Kind: program.Del, Targets: []int{v.Expr.Slot}})
}

// product is matmul_lora: x @ w, to which the adapter's part is added in place. first and
// second are lora_A and lora_B, or in a backward pass the two the other way round.
func (l *fusedLayer) product(f *module.Builder, x, dropped, first, second value.Value, forward bool) value.Value {
	return f.Inline("matmul_lora", []string{"X", "A", "B", "X_drop"}, []value.Value{x, first, second, dropped}, func(f *module.Builder, in []value.Value) []value.Value {
		x, a, b, dropped := in[0], in[1], in[2], in[3]
		whole := x
		w := l.weight(f)
		if forward {
			w = transpose(f, w)
		}
		w = f.Let("W", w)
		if len(x.Meta.Tensor.Size.Slice()) == 3 {
			whole = f.Let("X_whole", x)
			x = f.Let("X", rows(f, aten.View, x))
			if !dropped.Absent() {
				dropped = f.Let("X_drop", rows(f, aten.View, dropped))
			}
		}
		out := f.Let("out", matmul(f, x, w))
		drop(f, w)
		if !dropped.Absent() {
			x = dropped
		}
		first := f.Let("A", f.Do(aten.ToTypeOf, nil, transpose(f, a), x))
		second := f.Let("B", f.Do(aten.ToTypeOf, nil, transpose(f, b), x))
		f.Run(aten.AddmmInPlace, nil, out, matmul(f, x, first), second)
		if bias := l.bias(f); forward && !bias.Absent() {
			f.Run(aten.AddInPlace, &aten.BinaryArgs{}, out, bias)
		}
		return []value.Value{f.Do(aten.RowsOf, nil, out, whole)}
	})
}

// saved are the adapter's weights in the input's type.
func (l *fusedLayer) saved(f *module.Builder, a, b, x value.Value) []value.Value {
	return []value.Value{f.Let(l.name+"_A", f.Do(aten.ToTypeOf, nil, a, x)), f.Let(l.name+"_B", f.Do(aten.ToTypeOf, nil, b, x))}
}

// gradients computes those of the adapter's weights, transposed; part is grad @ B, which
// the gradient of the input needs, too.
func (l *fusedLayer) gradients(f *module.Builder, part string, grad, x, a, b value.Value) (values []value.Value, ofB value.Value) {
	ofB = f.Let(part, matmul(f, grad, b))
	da := f.Let("d_A_"+l.name, f.Do(aten.EmptyLike, &aten.FillArgs{}, transpose(f, a)))
	db := f.Let("d_B_"+l.name, f.Do(aten.EmptyLike, &aten.FillArgs{}, transpose(f, b)))
	f.Run(aten.AddmmInPlace, nil, da, transpose(f, x), ofB)
	f.Run(aten.AddmmInPlace, nil, db, matmul(f, a, transpose(f, x)), grad)
	return []value.Value{da, db}, ofB
}

// inputGradient adds an adapter's part to the gradient of the input, in place.
func inputGradient(f *module.Builder, dx, ofB, a value.Value) {
	f.Run(aten.AddmmInPlace, nil, dx, ofB, a)
}

// mlp calls apply_lora_mlp_swiglu, or geglu, which allocates the same.
func (b *fusion) mlp(x value.Value, gate, up, down *fusedLayer) value.Value {
	layers := []*fusedLayer{gate, up, down}
	names := []string{"X", "X_drop", "gate_A", "gate_B", "up_A", "up_B", "down_A", "down_B"}
	function := func(x, dropped value.Value) []value.Value {
		in := []value.Value{x, dropped, gate.a, gate.b, up.a, up.b, down.a, down.b}
		return []value.Value{b.Apply("LoRA_MLP", names, in, func(f *module.Builder, in []value.Value) module.Outcome {
			x, dropped := in[0], in[1]
			g := f.Let("gate", gate.product(f, x, dropped, in[2], in[3], true))
			u := f.Let("up", up.product(f, x, dropped, in[4], in[5], true))
			hidden := f.Let("hidden", f.Do(aten.Launch, &aten.LaunchArgs{Kernel: "swiglu_forward"}, f.Do(aten.EmptyLike, &aten.FillArgs{}, g)))
			o := module.Outcome{Returned: []value.Value{f.Let("output", down.product(f, hidden, value.Value{}, in[6], in[7], true))}}
			o.Saved = append(given(x, dropped), g, u)
			for i, l := range layers {
				o.Saved = append(o.Saved, l.saved(f, in[2+2*i], in[3+2*i], x)...)
			}
			return o
		}, func(f *module.Builder, grads, saved []value.Value) []value.Value {
			xs, rest := saved[:len(given(x, dropped))], saved[len(given(x, dropped)):]
			g, u, a := rest[0], rest[1], rest[2:]
			f.Declare("grad_down", "h", "grad_gate", "grad_up")
			for _, l := range []*fusedLayer{down, up, gate} {
				f.Declare("d_A_"+l.name, "d_B_"+l.name)
			}
			f.Declare("grad_B_up", "grad_B_gate", "grad_B_down", "dX", "dX_drop")
			whole := f.Let("shape", xs[0])
			grad := f.Let("grad_output", rows(f, aten.View, grads[0]))
			flat := f.Let("X", rows(f, aten.View, xs[0]))
			part := flat
			if len(xs) > 1 {
				part = f.Let("X_lora", rows(f, aten.View, xs[1]))
			}
			g, u = f.Let("gate", rows(f, aten.View, g)), f.Let("up", rows(f, aten.View, u))
			h := f.Let("grad_down", down.product(f, grad, value.Value{}, transpose(f, a[5]), transpose(f, a[4]), false))
			h = f.Let("h", h)
			dg, du := f.Let("grad_gate", g), f.Let("grad_up", u)
			dDown, _ := down.gradients(f, "grad_B_down", grad, h, a[4], a[5])
			dUp, ofUp := up.gradients(f, "grad_B_up", du, part, a[2], a[3])
			dGate, ofGate := gate.gradients(f, "grad_B_gate", dg, part, a[0], a[1])
			begin := len(f.Func.Body)
			w := f.Let("up_weight_deq", up.transposedWeight(f))
			dx := f.Let("dX", matmul(f, du, transpose(f, w)))
			drop(f, w)
			w = f.Let("gate_weight_deq", gate.weight(f))
			f.Run(aten.AddmmInPlace, nil, dx, dg, w)
			drop(f, w)
			var dDropped value.Value
			to := dx
			if len(xs) > 1 {
				to = f.Let("dX_drop", f.Do(aten.ZerosLike, &aten.FillArgs{}, part))
			}
			inputGradient(f, to, ofUp, a[2])
			inputGradient(f, to, ofGate, a[0])
			if len(xs) > 1 {
				dDropped = f.Let("dX_drop", f.Do(aten.RowsOf, nil, to, whole))
			}
			dx = f.Let("dX", f.Do(aten.RowsOf, nil, dx, whole))
			f.Wants(1, len(f.Func.Body)-begin)
			drop(f, whole)
			out := append([]value.Value{dx}, given(dDropped)...)
			for _, d := range [][]value.Value{dGate, dUp, dDown} {
				out = append(out, transpose(f, d[0]), transpose(f, d[1]))
			}
			return out
		})}
	}
	return b.applied("apply_lora_mlp", x, gate, function)
}

// transposedWeight is the weight as forward has it, the other way round.
func (l *fusedLayer) transposedWeight(f *module.Builder) value.Value {
	return transpose(f, l.weight(f))
}

// given are the values that are there.
func given(values ...value.Value) (out []value.Value) {
	for _, v := range values {
		if !v.Absent() {
			out = append(out, v)
		}
	}
	return out
}

// applied calls the function that takes the place of a layer's, or of several that share
// an input.
func (b *fusion) applied(name string, x value.Value, l *fusedLayer, function func(x, dropped value.Value) []value.Value) value.Value {
	return b.Inline(name, []string{"X"}, []value.Value{x}, func(f *module.Builder, in []value.Value) []value.Value {
		return l.dropped(f, in[0], function)
	})
}

// attention puts LoRA_QKV in the place of the calls of the projections, or LoRA_QK if
// there is no v_proj.
func (b *fusion) attention(f *program.Func, c *program.Class, layers []*fusedLayer) {
	kernel, names := "LoRA_QKV", []string{"X", "X_drop"}
	if len(layers) == 2 {
		kernel = "LoRA_QK"
	}
	for _, l := range layers {
		names = append(names, l.name+"_A", l.name+"_B")
	}
	function := func(x, dropped value.Value) []value.Value {
		in := []value.Value{x, dropped}
		for _, l := range layers {
			in = append(in, l.a, l.b)
		}
		return []value.Value{b.Apply(kernel, names, in, func(f *module.Builder, in []value.Value) module.Outcome {
			x, dropped := in[0], in[1]
			var o module.Outcome
			for i, l := range layers {
				o.Returned = append(o.Returned, f.Let(l.name, l.product(f, x, dropped, in[2+2*i], in[3+2*i], true)))
			}
			o.Saved = given(x, dropped)
			for i, l := range layers {
				o.Saved = append(o.Saved, l.saved(f, in[2+2*i], in[3+2*i], x)...)
			}
			return o
		}, func(f *module.Builder, grads, saved []value.Value) []value.Value {
			return gradientsQKV(f, layers, grads, saved, len(given(x, dropped)))
		})}
	}
	b.projected(f, c, func(x *program.Expr) value.Value {
		return b.applied(applyQKV, value.Value{Expr: x, Meta: b.sequence(layers[0]).Meta}, layers[0], function)
	})
}

// gradientsQKV is the backward pass of LoRA_QKV.
func gradientsQKV(f *module.Builder, layers []*fusedLayer, grads, saved []value.Value, inputs int) []value.Value {
	whole, a := f.Let("shape", saved[0]), saved[inputs:]
	for i, l := range layers {
		row := aten.View
		if i == 1 {
			row = aten.Reshape
		}
		grads[i] = f.Let(l.name+"_grad", rows(f, row, grads[i]))
	}
	flat := f.Let("X", rows(f, aten.View, saved[0]))
	part := flat
	if inputs > 1 {
		part = f.Let("X_lora", rows(f, aten.View, saved[1]))
	}
	for _, l := range layers {
		f.Declare("d_A_"+l.name, "d_B_"+l.name)
	}
	var d, ofB []value.Value
	for _, l := range layers {
		f.Declare("grad_B_" + l.name)
	}
	for i, l := range layers {
		di, of := l.gradients(f, "grad_B_"+l.name, grads[i], part, a[2*i], a[2*i+1])
		d, ofB = append(d, di...), append(ofB, of)
	}
	var dx value.Value
	for i, l := range layers {
		w := f.Let("weight_"+l.name, l.weight(f))
		if i == 0 {
			dx = f.Let("grad_X", matmul(f, grads[i], w))
		} else {
			f.Run(aten.AddmmInPlace, nil, dx, grads[i], w)
		}
		drop(f, w)
	}
	to := dx
	if inputs > 1 {
		to = f.Let("grad_X_drop", f.Do(aten.ZerosLike, &aten.FillArgs{}, part))
	}
	for i := range layers {
		inputGradient(f, to, ofB[i], a[2*i])
	}
	out := []value.Value{f.Let("grad_X", f.Do(aten.RowsOf, nil, dx, whole))}
	if inputs > 1 {
		out = append(out, f.Let("grad_X_drop", f.Do(aten.RowsOf, nil, to, whole)))
	}
	drop(f, whole)
	for _, v := range d {
		out = append(out, transpose(f, v))
	}
	return out
}

// output puts LoRA_O in the place of a call, or a function that calls the layer, if it has
// no adapter.
func (b *fusion) output(f *program.Func, c *program.Class, adapted *program.Class) {
	at, call := b.find(f, c, "o_proj")
	if adapted == nil {
		child := c.Child("o_proj")
		in, n := linearSize(c.Children[child].Class)
		v := b.Inline(applyO, []string{"hidden_states"}, []value.Value{{Expr: call.Args[0], Meta: b.input(1, in).Meta}}, func(f *module.Builder, in []value.Value) []value.Value {
			return []value.Value{f.Let("attn_output", f.CallChild(child, []value.Value{b.input(1, n)}, in[0]))}
		})
		f.Body[at].Value = replaced(f.Body[at].Value, call, v.Expr)
		return
	}
	l := b.layer("o_proj", adapted)
	function := func(x, dropped value.Value) []value.Value {
		return []value.Value{b.Apply("LoRA_O", []string{"X", "X_drop", "A", "B"}, []value.Value{x, dropped, l.a, l.b}, func(f *module.Builder, in []value.Value) module.Outcome {
			y := f.Let("XW", l.product(f, in[0], in[1], in[2], in[3], true))
			return module.Outcome{Returned: []value.Value{y}, Saved: append(l.saved(f, in[2], in[3], in[0]), given(in[0], in[1])...)}
		}, func(f *module.Builder, grads, saved []value.Value) []value.Value {
			a, b, whole := saved[0], saved[1], f.Let("shape", saved[2])
			grad := f.Let("dY", rows(f, aten.Reshape, grads[0]))
			x := f.Let("X", rows(f, aten.Reshape, saved[2]))
			if len(saved) > 3 {
				x = f.Let("X_lora", rows(f, aten.Reshape, saved[3]))
			}
			f.Declare("d_A_"+l.name, "d_B_"+l.name)
			d, ofB := l.gradients(f, "grad_B", grad, x, a, b)
			w := f.Let("W_deq", l.transposedWeight(f))
			dx := f.Let("dX", matmul(f, grad, transpose(f, w)))
			drop(f, w)
			out := []value.Value{}
			if len(saved) > 3 {
				scaled := f.Do(aten.Mul, &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: 1}}, matmul(f, ofB, a))
				out = append(out, f.Do(aten.RowsOf, nil, dx, whole), f.Let("dX_drop", f.Do(aten.RowsOf, nil, scaled, whole)))
			} else {
				inputGradient(f, dx, ofB, a)
				out = append(out, f.Do(aten.RowsOf, nil, dx, whole))
			}
			return append(out, transpose(f, d[0]), transpose(f, d[1]))
		})}
	}
	v := b.applied(applyO, value.Value{Expr: call.Args[0], Meta: b.sequence(l).Meta}, l, function)
	f.Body[at].Value = replaced(f.Body[at].Value, call, v.Expr)
}
