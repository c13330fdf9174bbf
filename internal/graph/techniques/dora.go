package techniques

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// doraLinear is what a layer with DoRA computes (DoraLinearVariant.forward in
// peft/tuners/lora/variants.py): with a dropout the layer itself is computed again, of
// what the dropout leaves. x is the input in the adapter's type.
func (b *adapter) doraLinear(base *program.Class, x, result value.Value, drop int, dropped []value.Value, down, up int) value.Value {
	in, out := linearSize(base)
	b.Class.Children = append(b.Class.Children, program.Child{Path: program.Magnitude, Class: &program.Class{
		Layer: nn.DoraMagnitude, Python: nn.DoraMagnitude.Python + "()", Params: []program.Param{{Name: "weight", Size: []int64{out}, DType: b.DType()}},
	}})
	return b.Inline("dora_forward", []string{"x", "result"}, []value.Value{x, result}, func(f *module.Builder, args []value.Value) []value.Value {
		x, result := args[0], args[1]
		added := func(x, first value.Value) value.Value {
			return f.Do(aten.Add, &aten.AddArgs{}, result, f.Inline("dora", []string{"x", "base_result"}, []value.Value{x, first}, func(f *module.Builder, args []value.Value) []value.Value {
				return []value.Value{b.doraAdded(f, base, args[0], args[1], in, out, down, up)}
			}))
		}
		if b.loraArgs.dropout == 0 {
			return []value.Value{f.Let("result", added(x, result))}
		}
		f.Finish(added(x, result))
		f.InEval(1)
		x = f.Let("x", f.CallChild(drop, dropped, x))
		return []value.Value{f.Let("result", added(x, value.Value{}))}
	})
}

// doraAdded is DoraLinearLayer.forward.
func (b *adapter) doraAdded(f *module.Builder, base *program.Class, x, first value.Value, in, out int64, down, up int) value.Value {
	adapterOf := func(f *module.Builder, x value.Value) value.Value {
		return f.CallChild(up, []value.Value{b.input(out)}, f.CallChild(down, []value.Value{b.input(b.r)}, x))
	}
	square := value.Value{Meta: value.Tensor(&op.Tensor{Layout: tensor.Contiguous(tensor.D(in, out)), DType: b.DType()})}
	delta := f.Let("lora_weight", f.Inline("get_lora_weight", nil, nil, func(f *module.Builder, _ []value.Value) []value.Value {
		d := b.DType()
		eye := f.Let("x_eye", f.Do(aten.Eye, &aten.EyeArgs{N: in, DType: &d}))
		product := f.CallChild(up, []value.Value{square}, f.CallChild(down, []value.Value{b.input(b.r)}, eye))
		return []value.Value{f.Let("lora_weight", f.Do(aten.T, nil, product))}
	}))
	delta = f.Let("lora_weight", f.Do(aten.ToTypeOf, nil, delta, x))
	weight := f.Let("weight", f.Do(aten.ToTypeOf, nil, b.baseWeight(f, base), x))
	detached := f.Do(aten.Detach, nil, delta)
	norm := f.Let("weight_norm", f.Inline("get_weight_norm", []string{"weight", "lora_weight"}, []value.Value{weight, detached}, func(f *module.Builder, args []value.Value) []value.Value {
		weight := args[0]
		if isConv1D(base) {
			weight = f.Let("weight", f.Do(aten.T, nil, weight))
		}
		scaled := f.Do(aten.Mul, &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: b.scaling()}}, args[1])
		weight = f.Let("weight", f.Do(aten.Add, &aten.AddArgs{}, weight, scaled))
		norm := f.Do(aten.VectorNorm, &aten.NormArgs{ReduceArgs: aten.ReduceArgs{Dim: []int64{1}}}, weight)
		return []value.Value{f.Let("weight_norm", f.Do(aten.ToTypeOf, nil, norm, weight))}
	}))
	norm = f.Let("weight_norm", f.Do(aten.Detach, nil, norm))
	size := b.Own(program.Magnitude+".weight", b.DType(), []int64{out})
	scale := f.Let("mag_norm_scale", f.Do(aten.View, &aten.ShapeArgs{Shape: []int64{1, -1}}, f.Do(aten.Div, &aten.BinaryArgs{}, size, norm)))
	part := f.Let("lora_result", adapterOf(f, x))
	switch {
	case first.Absent():
		if isConv1D(base) {
			weight = f.Do(aten.T, nil, weight)
		}
		first = f.Let("base_result", f.Do(aten.Linear, nil, x, weight))
	case base.FindParam("bias") != nil:
		bias := base.FindParam("bias")
		first = f.Let("base_result", f.Do(aten.Sub, &aten.BinaryArgs{}, first, b.Own(program.BaseLayer+".bias", bias.DType, bias.Size)))
	}
	less := f.Do(aten.Mul, &aten.BinaryArgs{}, f.Do(aten.Sub, &aten.BinaryArgs{Other: op.Number{Set: true, Value: 1}}, scale), first)
	more := b.scaledIn(f, f.Do(aten.Mul, &aten.BinaryArgs{}, scale, part))
	return f.Let("result_dora", f.Do(aten.Add, &aten.AddArgs{}, less, more))
}

// baseWeight is the weight of the layer itself, dequantized if it is quantized
// (dequantize_module_weight in peft/utils/integrations.py).
func (b *adapter) baseWeight(f *module.Builder, base *program.Class) value.Value {
	if q := base.Quantized; q != nil {
		if q.Bits != 4 {
			b.Fail("", "use_dora around a layer of 8 bits is not modelled")
		}
		w := base.FindParam("weight")
		absmax := base.Buffers[0]
		return f.Do(aten.Dequantize4bit, &aten.Dequantize4bitArgs{Out: q.Out, In: q.In, DType: q.Source, Double: q.Double},
			b.Own(program.BaseLayer+".weight", w.DType, w.Size), b.Own(program.BaseLayer+".absmax", absmax.DType, absmax.Size))
	}
	w := base.FindParam("weight")
	return b.Own(program.BaseLayer+".weight", w.DType, w.Size)
}
