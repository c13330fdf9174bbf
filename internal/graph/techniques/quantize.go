package techniques

import (
	"regexp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// bitsandbytes is what memory depends on in its releases, by those that specs name: each
// stands for those after the one before it.
var bitsandbytes = map[string]struct {
	half  bool // Params4bit converts weights to float16
	keeps bool // MatMul4Bit keeps its input for the backward pass (until PR 1270)
	gemm  bool // products of 4 bits are an operator of its own
}{
	"0.42": {half: true, keeps: true}, "0.43.1": {keeps: true}, "0.49": {}, "0.50": {gemm: true},
}

// inRelease sets what a release of bitsandbytes does. Its LLM.int8() was another one
// before 0.46.
func (j *Job) inRelease(q *program.Quantized, library spec.String) {
	r := bitsandbytes[library.V]
	if q.Bits == 8 {
		if r.keeps {
			j.fail(library.At, "weights of 8 bits are modelled as bitsandbytes 0.46 and later have them")
		}
		return
	}
	if q.Keeps, q.Gemm = r.keeps, r.gemm; r.half {
		q.Source = tensor.Float16
	}
}

// quantized replaces the linear layers of a model as transformers does with
// bitsandbytes: all but the last, unless the spec names them.
func (j *Job) quantized(name string, m *program.Model, q *spec.Quantize) {
	if q.Bits.V != 4 && q.Bits.V != 8 {
		j.fail(q.Bits.At, "bits must be 4 or 8, not %d", q.Bits.V)
	}
	loaded := j.Env.DType
	if q.DType.Set {
		if loaded = j.Spec.Errs.DType(q.DType); !loaded.IsFloating() {
			j.fail(q.DType.At, "weights are loaded in a floating-point type, not %v", loaded)
		}
	}
	all, last := j.adaptable(m)
	var known []string
	for _, p := range all {
		if quantizable(p.Class) {
			known = append(known, p.Path)
		}
	}
	z := &program.Quantization{DType: loaded, Of: program.Quantized{Bits: int(q.Bits.V), Source: loaded}}
	if z.Of.Bits == 4 {
		z.Of.Type, z.Of.Double, z.Of.Compute, z.Of.Storage = q.Type.V, q.Double.V, j.Spec.Errs.DType(q.Compute), tensor.Uint8
		if !z.Of.Compute.IsFloating() {
			j.fail(q.Compute.At, "compute_dtype must be a floating-point type, not %v", z.Of.Compute)
		}
	} else {
		z.Of.Threshold = q.Threshold.V
	}
	j.inRelease(&z.Of, q.Library)
	z.Modules = moduleNames(j.Spec.Errs, q.Modules, "linear layer", known)
	z.Except = moduleNames(j.Spec.Errs, q.Except, "linear layer", known)
	if len(q.Modules) == 0 {
		z.Modules, z.Except = program.Patterns{"*"}, append(z.Except, last)
	}
	tied := tiedModules(m.Root)
	for _, p := range all {
		if !quantizable(p.Class) || !z.Modules.Fits(p.Path) || z.Except.Fits(p.Path) {
			continue
		}
		if tied[p.Path] {
			j.fail(q.At, "quantize: the weight of %s is tied to another module's, which quantization would separate", p.Path)
		}
		z.Layers = append(z.Layers, program.Place{Path: p.Path, Class: j.quantizedLayer(j.Env, p, z.Of, q.At)})
	}
	if len(z.Layers) == 0 {
		j.fail(q.At, "quantize: %s has no linear layer to quantize except the last", name)
	}
	m.Quantized = z
}

// loadedQuantized replaces the linear layers of a model that from_pretrained reads
// with a quantization_config.
func (j *Job) loadedQuantized(m *Model, pm *program.Model) {
	w := m.Loaded
	q := w.Quantize
	z := &program.Quantization{DType: w.DType, Of: program.Quantized{Bits: 8, Source: w.DType}}
	if q.Load4bit.V {
		z.Of.Bits, z.Of.Type, z.Of.Double = 4, q.Type.V, q.Double.V
		z.Of.Compute, z.Of.Storage = j.Spec.Errs.DType(q.Compute), j.Spec.Errs.DType(q.Storage)
		if !z.Of.Compute.IsFloating() {
			j.fail(q.Compute.At, "bnb_4bit_compute_dtype must be a floating-point type, not %v", z.Of.Compute)
		}
	} else {
		z.Of.Threshold = q.Threshold.V
	}
	j.inRelease(&z.Of, m.Use.Load.Library)
	kept := j.notConverted(m, pm, q, w.Kept)
	all, _ := j.adaptable(pm)
	for _, p := range all {
		if !quantizable(p.Class) {
			continue
		}
		if kept(p.Path) {
			z.Except = append(z.Except, p.Path)
			continue
		}
		if name := p.Path[strings.LastIndexByte(p.Path, '.')+1:]; slices.Contains(w.Unpacked, name) {
			j.fail(q.At, "quantization_config: transformers 5.12 fails to train a quantized %s, whose weight is taken without a call of the layer; write llm_int8_skip_modules: [%s] (in a file of Axolotl below bnb_config_kwargs)", p.Path, name)
		}
		env := *j.Env
		env.DType = w.Trained(p.Path)
		z.Layers = append(z.Layers, program.Place{Path: p.Path, Class: j.quantizedLayer(&env, p, z.Of, m.Use.Load.At)})
	}
	z.Modules = program.Patterns{"*"}
	if len(z.Layers) == 0 { // transformers warns, too
		*j.Warnings = append(*j.Warnings, note.FitsNothing.New("quantization_config: %s has no linear layer that transformers quantizes, and keeps its weights in %v", m.Name, w.DType).Of("model.load.quantization_config"))
	}
	pm.Quantized = z
}

// quantizable reports whether transformers replaces a layer by one of bitsandbytes: an
// nn.Linear, of no subclass, or its Conv1D (replace_with_bnb_linear in
// transformers/integrations/bitsandbytes.py).
func quantizable(c *program.Class) bool { return isLinear(c) && c.Layer != nn.LinearOf }

// notConverted says which modules stay as they are (get_modules_to_not_convert in
// transformers/quantizers/base.py): by default those whose weights are tied, the output
// embedding and the module of the last parameter.
func (j *Job) notConverted(model *Model, m *program.Model, q *spec.BitsAndBytes, always []string) func(path string) bool {
	keys := slices.Clone(always)
	at := map[string]spec.Span{}
	if q.Skips {
		for _, s := range q.Skip {
			keys = append(keys, s.V)
			at[s.V] = s.At
		}
	} else {
		params := slices.DeleteFunc(m.Root.ParamPaths(), j.ofPrompts)
		for _, param := range append(tiedParams(m.Root), params[len(params)-1]) {
			keys = append(keys, strings.TrimSuffix(param, ".weight"))
		}
		if head := j.outputEmbedding(model, m); head != "" {
			keys = append(keys, head)
		}
	}
	var res []*regexp.Regexp
	for _, k := range keys {
		re, err := regexp.Compile("^(?:" + k + ")")
		if err != nil {
			j.fail(at[k], "llm_int8_skip_modules: %q is not a regular expression", k)
		}
		res = append(res, re)
	}
	return func(path string) bool {
		for i, re := range res {
			if re.MatchString(path) || strings.HasSuffix(path, keys[i]) {
				return true
			}
		}
		return false
	}
}

// tiedParams lists the paths of the parameters that are another's too.
func tiedParams(root *program.Class) (out []string) {
	root.Walk(func(path string, c *program.Class) {
		for _, ch := range c.Children {
			for _, t := range ch.Ties {
				out = append(out, program.Join(program.Join(path, ch.Path), t.Param), program.Join(path, t.Source))
			}
		}
	})
	return out
}

// tiedModules holds the paths of the modules that share a parameter with
// another.
func tiedModules(root *program.Class) map[string]bool {
	out := map[string]bool{}
	for _, p := range tiedParams(root) {
		out[p[:max(strings.LastIndexByte(p, '.'), 0)]] = true
	}
	return out
}

// outputEmbedding is the path of the layer that get_output_embeddings of a transformers'
// model returns; "": none.
func (j *Job) outputEmbedding(m *Model, pm *program.Model) string {
	layers, last := j.adaptable(pm)
	switch task, _ := m.Params.Lookup("task"); task {
	case "causal-lm", "masked-lm", "seq2seq-lm":
		return last
	case "pretraining": // after it comes the layer for the second loss
		for _, l := range layers {
			if strings.HasSuffix(l.Path, "predictions.decoder") {
				return l.Path
			}
		}
	}
	return ""
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
func (j *Job) quantizedLayer(env *module.Env, p program.Place, q program.Quantized, at spec.Span) *program.Class {
	return j.once(quantizedClass{p.Class, env.DType, q}, func() *program.Class { return j.quantizedOnce(env, p, q, at) })
}

// quantizedClass is what the class of a quantized layer depends on.
type quantizedClass struct {
	linear *program.Class
	dtype  tensor.DType
	of     program.Quantized
}

func (j *Job) quantizedOnce(env *module.Env, p program.Place, q program.Quantized, at spec.Span) *program.Class {
	defer j.replacing(at, "quantize: "+p.Path)
	linear := p.Class
	q.In, q.Out = linearSize(linear)
	q.Transposed = isConv1D(linear)
	weight := program.Param{Name: "weight", Size: []int64{q.Out, q.In}, DType: tensor.Int8, Fixed: true, Elements: q.Out * q.In}
	state := []program.Param{{Name: "SCB", Size: []int64{q.Out}, DType: tensor.Float32, Fixed: true}}
	if q.Gemm {
		q.Rows = aten.FusedRows(env.Shapes.Env(), q.Compute, q.Out, q.In)
	}
	layer := nn.Linear8bit
	if q.Bits == 4 {
		layer = nn.Linear4bit
		weight.Size, weight.DType = []int64{(q.Out*q.In + 1) / (2 * q.Storage.Size()), 1}, q.Storage
		blocks := tensor.DivUp(q.Out*q.In, aten.Block4bit)
		state = []program.Param{{Name: "absmax", Size: []int64{blocks}, DType: tensor.Float32, Fixed: true}, {Name: "code", Size: []int64{16}, DType: tensor.Float32, Fixed: true}}
		if q.Double {
			state[0].DType = tensor.Uint8
			state = append(state, program.Param{Name: "offset", DType: tensor.Float32, Fixed: true}, program.Param{Name: "nested_absmax", Size: []int64{tensor.DivUp(blocks, aten.BlockOfMax)}, DType: tensor.Float32, Fixed: true},
				program.Param{Name: "nested_code", Size: []int64{256}, DType: tensor.Float32, Fixed: true})
		}
	}
	b := &replacement{module.NewBuilder(env, &program.Class{
		Layer: layer, Python: layer.Python + "()", Quantized: &q, Params: []program.Param{weight}, Buffers: state,
	}, "x"), j.Batch}
	if len(linear.Params) > 1 {
		b.Class.Params = append(b.Class.Params, linear.Params[1])
	}
	if q.Bits == 4 {
		b.linear4bit(&q)
	} else {
		b.linear8bit(&q)
	}
	return b.Class
}

// retype converts the bias to the input's type for good, as both layers do:
// self.bias.data = self.bias.data.to(x.dtype).
func (b *replacement) retype(x value.Value) {
	if bias := b.Attr("bias"); !bias.Absent() {
		v := b.Do(aten.DataToTypeOf, nil, bias, x)
		b.Emit(program.Stmt{Kind: program.SetAttr, Path: "bias", Value: v.Expr})
	}
}

// linear4bit is bitsandbytes.nn.Linear4bit: the input in the compute type, the
// product with the dequantized weight, and the result in the input's type. The bias is
// converted for good: to the compute type since 0.50, to the input's before.
func (b *replacement) linear4bit(q *program.Quantized) {
	x := b.input(q.In)
	if !q.Gemm {
		b.retype(x)
	}
	dtype := b.Let("inp_dtype", b.Do(aten.DTypeOf, nil, x))
	to := &aten.ToCopyArgs{DType: q.Compute}
	x = b.Let("x", b.Do(aten.To, to, x))
	if q.Gemm {
		b.retype(x)
	}
	bias := b.Attr("bias")
	if !bias.Absent() {
		bias = b.Let("bias", b.Do(aten.To, to, bias))
	}
	dequantized := func(f *module.Builder, like value.Value) value.Value {
		a := &aten.Dequantize4bitArgs{Out: q.Out, In: q.In, DType: q.Source, Double: q.Double}
		return f.Do(aten.ToTypeOf, nil, f.Do(aten.Dequantize4bit, a, b.Attr("weight"), b.Attr("absmax")), like)
	}
	y := b.Apply("MatMul4Bit", []string{"A", "bias"}, []value.Value{x, bias}, func(f *module.Builder, in []value.Value) module.Outcome {
		if q.Gemm {
			a := &aten.Gemm4bitArgs{Out: q.Out, In: q.In, Double: q.Double, Rows: q.Rows}
			return module.Outcome{Returned: []value.Value{f.Let("output", f.Do(aten.Gemm4bit, a, in[0], b.Attr("weight"), b.Attr("absmax"), in[1]))}}
		}
		o := module.Outcome{Returned: []value.Value{f.Let("output", f.Do(aten.Linear, nil, in[0], dequantized(f, in[0]), in[1]))}}
		if q.Keeps {
			o.Kept, o.IfWanted = in[:1], true
		}
		return o
	}, func(f *module.Builder, grads, _ []value.Value) []value.Value {
		bias := biasGradient(f, grads[0], &q.Compute)
		a := f.Let("grad_A", f.Do(aten.Matmul, nil, grads[0], dequantized(f, grads[0])))
		f.Wants(1, 1)
		return []value.Value{a, bias}
	})
	b.Finish(b.Do(aten.ToTypeOf, nil, y, dtype))
}

// linear8bit is bitsandbytes.nn.Linear8bitLt (LLM.int8()): the input is
// quantized, too, and kept as it was by an attribute of the context, which lives
// as long as the graph.
func (b *replacement) linear8bit(q *program.Quantized) {
	x := b.input(q.In)
	b.retype(x)
	half := &aten.ToCopyArgs{DType: tensor.Float16}
	quantize, args := aten.Int8Quantize, any(nil)
	if q.Threshold > 0 {
		quantize, args = aten.Int8Outliers, &aten.Int8Args{Threshold: q.Threshold}
	}
	y := b.Apply("MatMul8bitLt", []string{"A", "bias"}, []value.Value{x, b.Attr("bias")}, func(f *module.Builder, in []value.Value) module.Outcome {
		whole := f.Let("input", in[0])
		a := f.Let("A", f.Do(aten.Rows3, nil, in[0]))
		parts := f.LetAll([]string{"CA", "SCA"}, f.Call(quantize, args, f.Do(aten.To, half, a)))
		out := f.Let("output", f.Do(aten.Int8Product, nil, parts[0], b.Attr("weight"), a, in[1]))
		return module.Outcome{Returned: []value.Value{f.Do(aten.RowsOf, nil, out, whole)}, Kept: []value.Value{a}, IfWanted: true}
	}, func(f *module.Builder, grads, kept []value.Value) []value.Value {
		bias := biasGradient(f, grads[0], nil)
		if len(kept) == 0 {
			return []value.Value{value.None(), bias}
		}
		whole := f.Let("grad", grads[0])
		g := f.Let("grad_output", f.Do(aten.Rows3, nil, grads[0]))
		w := f.Let("CB", f.Do(aten.Int8Dequantize, nil, b.Attr("weight"), kept[0]))
		grad := f.Do(aten.Matmul, nil, f.Do(aten.ToTypeOf, nil, g, kept[0]), w)
		a := f.Let("grad_A", f.Do(aten.ViewRowsOf, nil, grad, whole))
		f.Wants(1, 2)
		return []value.Value{a, bias}
	})
	b.Finish(y)
}

// biasGradient is what both functions compute first, if it is wanted:
// grad_output.sum(0, dtype=bias.dtype); nil: the gradient has the type of the bias.
func biasGradient(f *module.Builder, grad value.Value, bias *tensor.DType) value.Value {
	v := f.Let("grad_bias", f.Do(aten.Sum, &aten.ReduceArgs{Dim: []int64{0}, DType: bias}, grad))
	f.Wants(2, 1)
	return v
}
