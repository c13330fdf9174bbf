package graph

import (
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Quantized replaces the linear layers of a model as transformers does with
// bitsandbytes: all but the last, unless the spec names them.
func (c *Changer) Quantized(name string, m *program.Model, q *spec.Quantize) {
	if q.Bits.V != 4 && q.Bits.V != 8 {
		c.Errs.Failf(q.Bits.At, "bits must be 4 or 8, not %d", q.Bits.V)
	}
	loaded := c.Env.DType
	if q.DType.Set {
		if loaded = c.Errs.DType(q.DType); !loaded.IsFloating() {
			c.Errs.Failf(q.DType.At, "weights are loaded in a floating-point type, not %v", loaded)
		}
	}
	all, last := adaptable(m)
	var known []string
	for _, p := range all {
		if isLinear(p.Class) {
			known = append(known, p.Path)
		}
	}
	z := &program.Quantization{DType: loaded, Of: program.Quantized{Bits: int(q.Bits.V), Source: loaded}}
	if z.Of.Bits == 4 {
		z.Of.Type, z.Of.Double, z.Of.Compute = q.Type.V, q.Double.V, c.Errs.DType(q.Compute)
		if !z.Of.Compute.IsFloating() {
			c.Errs.Failf(q.Compute.At, "weights are multiplied in a floating-point type, not %v", z.Of.Compute)
		}
	} else {
		z.Of.Threshold = q.Threshold.V
	}
	z.Modules = moduleNames(c.Errs, q.Modules, "linear layer", known)
	z.Except = moduleNames(c.Errs, q.Except, "linear layer", known)
	if len(q.Modules) == 0 {
		z.Modules, z.Except = program.Patterns{"*"}, append(z.Except, last)
	}
	tied := tiedModules(m.Root)
	for _, p := range all {
		if !isLinear(p.Class) || !z.Modules.Fits(p.Path) || z.Except.Fits(p.Path) {
			continue
		}
		if tied[p.Path] {
			c.Errs.Failf(q.At, "quantize: the weight of %s is tied to another module's, which quantization would part", p.Path)
		}
		z.Layers = append(z.Layers, program.Place{Path: p.Path, Class: c.quantizedLayer(p, z.Of, q.At)})
	}
	if len(z.Layers) == 0 {
		c.Errs.Failf(q.At, "quantize: %s has no linear layer to quantize beside the last", name)
	}
	m.Quantized = z
}

// tiedModules holds the paths of the modules that share a parameter with
// another.
func tiedModules(root *program.Class) map[string]bool {
	out := map[string]bool{}
	add := func(path, param string) {
		p := program.Join(path, param)
		out[p[:strings.LastIndexByte(p, '.')]] = true
	}
	root.Walk(func(path string, c *program.Class) {
		for _, ch := range c.Children {
			for _, t := range ch.Ties {
				add(program.Join(path, ch.Path), t.Param)
				add(path, t.Source)
			}
		}
	})
	return out
}

// quantizedLayers holds the classes of a model's quantized layers by path.
func quantizedLayers(m *program.Model) map[string]*program.Class {
	out := map[string]*program.Class{}
	if m.Quantized != nil {
		for _, p := range m.Quantized.Layers {
			out[p.Path] = p.Class
		}
	}
	return out
}

// quantizedLinear reports whether a class is a linear layer whose weight is
// quantized.
func quantizedLinear(c *program.Class) bool { return c.Quantized != nil }

func fourBits(c *program.Class) bool { return c.Quantized != nil && c.Quantized.Bits == 4 }

// quantizedLayer is the class of the quantized linear layer at a place.
func (c *Changer) quantizedLayer(p program.Place, q program.Quantized, at spec.Span) *program.Class {
	defer c.replacing(at, "quantize: "+p.Path)
	linear := p.Class
	q.In, q.Out = linearSize(linear)
	weight := program.Param{Name: "weight", Size: []int64{q.Out, q.In}, DType: tensor.Int8, Fixed: true, Elements: q.Out * q.In}
	state := []program.Param{{Name: "SCB", Size: []int64{q.Out}, DType: tensor.Float32, Fixed: true}}
	layer := nn.Linear8bit
	if q.Bits == 4 {
		layer = nn.Linear4bit
		weight.Size, weight.DType = []int64{(q.Out*q.In + 1) / 2, 1}, tensor.Uint8
		state = []program.Param{{Name: "absmax", DType: tensor.Float32, Fixed: true}, {Name: "code", Size: []int64{16}, DType: tensor.Float32, Fixed: true}}
		if q.Double {
			state[0].DType = tensor.Uint8
			state = append(state, program.Param{Name: "offset", DType: tensor.Float32, Fixed: true}, program.Param{Name: "nested_absmax", DType: tensor.Float32, Fixed: true})
		}
	}
	b := &replacement{newBuilder(c.Env, &program.Class{
		Layer: layer, Python: layer.Python + "()", Quantized: &q, Params: []program.Param{weight}, Buffers: state,
	}, "x"), c.Batch}
	if len(linear.Params) > 1 {
		b.class.Params = append(b.class.Params, linear.Params[1])
	}
	if q.Bits == 4 {
		b.linear4bit(&q)
	} else {
		b.linear8bit(&q)
	}
	return b.class
}

// retype converts the bias to the input's type for good, as both layers do:
// self.bias.data = self.bias.data.to(x.dtype).
func (b *replacement) retype(x val) {
	if bias := b.attr("bias"); !bias.isNone() {
		v := b.do(op.DataToTypeOf, nil, bias, x)
		b.fn.Body = append(b.fn.Body, program.Stmt{Kind: program.SetAttr, Path: "bias", Value: v.e})
	}
}

// linear4bit is bitsandbytes.nn.Linear4bit: the input in the compute type, the
// product with the dequantized weight, and the result in the input's type.
func (b *replacement) linear4bit(q *program.Quantized) {
	x := b.input(q.In)
	b.retype(x)
	dtype := b.let("inp_dtype", b.do(op.DTypeOf, nil, x))
	to := &op.ToCopyArgs{DType: q.Compute}
	x = b.let("x", b.do(op.To, to, x))
	bias := b.attr("bias")
	if !bias.isNone() {
		bias = b.let("bias", b.do(op.To, to, bias))
	}
	dequantized := func(f *builder, like val) val {
		a := &op.Dequantize4bitArgs{Out: q.Out, In: q.In, DType: q.Source, Double: q.Double}
		return f.do(op.ToTypeOf, nil, f.do(op.Dequantize4bit, a, b.attr("weight"), b.attr("absmax")), like)
	}
	y := b.apply("MatMul4Bit", []string{"A", "bias"}, []val{x, bias}, func(f *builder, in []val) ([]val, []val) {
		return []val{f.let("output", f.do(op.Linear, nil, in[0], dequantized(f, in[0]), in[1]))}, nil
	}, func(f *builder, grads, _ []val) []val {
		bias := biasGradient(f, grads[0])
		a := f.let("grad_A", f.do(op.Matmul, nil, grads[0], dequantized(f, grads[0])))
		f.wants(1, 1)
		return []val{a, bias}
	})
	b.finish([]val{b.do(op.ToTypeOf, nil, y, dtype)})
}

// linear8bit is bitsandbytes.nn.Linear8bitLt (LLM.int8()): the input is
// quantized, too, and kept as it was by an attribute of the context, which lives
// as long as the graph.
func (b *replacement) linear8bit(q *program.Quantized) {
	x := b.input(q.In)
	b.retype(x)
	half := &op.ToCopyArgs{DType: tensor.Float16}
	quantize, args := op.Int8Quantize, any(nil)
	if q.Threshold > 0 {
		quantize, args = op.Int8Outliers, &op.Int8Args{Threshold: q.Threshold}
	}
	y := b.apply("MatMul8bitLt", []string{"A", "bias"}, []val{x, b.attr("bias")}, func(f *builder, in []val) ([]val, []val) {
		whole := f.let("input", in[0])
		a := f.let("A", f.do(op.Rows3, nil, in[0]))
		parts := f.letAll([]string{"CA", "SCA"}, f.call(quantize, args, f.do(op.To, half, a)))
		out := f.let("output", f.do(op.Int8Product, nil, parts[0], b.attr("weight"), a, in[1]))
		return []val{f.do(op.RowsOf, nil, out, whole)}, []val{a}
	}, func(f *builder, grads, kept []val) []val {
		bias := biasGradient(f, grads[0])
		if len(kept) == 0 {
			return []val{noneVal(), bias}
		}
		whole := f.let("grad", grads[0])
		g := f.let("grad_output", f.do(op.Rows3, nil, grads[0]))
		w := f.let("CB", f.do(op.Int8Dequantize, nil, b.attr("weight"), kept[0]))
		grad := f.do(op.Matmul, nil, f.do(op.ToTypeOf, nil, g, kept[0]), w)
		a := f.let("grad_A", f.do(op.ViewRowsOf, nil, grad, whole))
		f.wants(1, 2)
		return []val{a, bias}
	})
	b.finish([]val{y})
}

// biasGradient is what both functions compute first, if it is wanted:
// grad_output.sum(0).
func biasGradient(f *builder, grad val) val {
	v := f.let("grad_bias", f.do(op.Sum, &op.ReduceArgs{Dim: []int64{0}}, grad))
	f.wants(2, 1)
	return v
}
