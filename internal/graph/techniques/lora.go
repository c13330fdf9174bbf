package techniques

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// allLinear is the target that stands for every linear layer but the last.
const allLinear = "all-linear"

// adapters wraps the layers that the section lora targets.
func (j *Job) adapters(name string, m *program.Model, l *spec.LoRA) {
	a := &program.Adapters{Bias: l.Bias.V, DType: j.Spec.Errs.DType(l.DType), OnHost: j.sharded()}
	if !a.DType.IsFloating() {
		j.fail(l.DType.At, "adapters need a floating-point type, not %v", a.DType)
	}
	places, last := j.adaptable(m)
	var known []string
	for _, p := range places {
		known = append(known, p.Path)
	}
	if len(known) == 0 {
		j.fail(l.At, "lora: %s has no layer that an adapter goes around (Linear, Conv1d to Conv3d, Embedding)", name)
	}
	targets := l.Targets
	all := len(targets) == 0 || (len(targets) == 1 && targets[0].V == allLinear)
	if all {
		targets = nil
	}
	chosen := moduleNames(j.Spec.Errs, targets, "layer for an adapter", known)
	except := moduleNames(j.Spec.Errs, l.Except, "layer for an adapter", known)
	groups := adapterGroups{}
	args := &loraArgs{r: l.R.V, alpha: l.Alpha.V, dropout: l.Dropout.V}
	for _, p := range places {
		switch {
		case all && (!isLinear(p.Class) || p.Path == last), !all && !chosen.Fits(p.Path), except.Fits(p.Path):
			continue
		}
		class := j.adapted(p.Path, p.Class, a.DType, args, l.At)
		a.Layers = append(a.Layers, program.Place{Path: p.Path, Class: class})
		groups.add(p.Path, class, args.python())
	}
	if len(a.Layers) == 0 {
		j.fail(l.At, "lora: no layer of %s is left for an adapter; targets may name %s", name, strings.Join(known, ", "))
	}
	a.Groups = groups.condensed(m.Root.ModulePaths())
	a.Modules = moduleNames(j.Spec.Errs, l.ModulesToSave, "module", m.Root.ModulePaths())
	j.savedModules(m, a, l.At)
	m.Adapters = a
}

// moduleNames reads names of modules as PEFT takes them: a name without a star stands
// for every module whose path ends with it.
func moduleNames(errs *spec.Errors, list []spec.String, what string, known []string) program.Patterns {
	var out program.Patterns
	var patterns []spec.String
	for _, s := range list {
		if strings.ContainsAny(s.V, "*?[") {
			patterns = append(patterns, s)
			continue
		}
		found := program.Patterns{s.V, "*." + s.V}
		ok := false
		for _, k := range known {
			ok = ok || found.Fits(k)
		}
		if !ok {
			errs.Unknown(s.At, what, s.V, slips(s.V, known, true))
			panic(spec.Stop{})
		}
		out = append(out, found...)
	}
	return append(out, Patterns(errs, patterns, what, known)...)
}

// adaptable lists the layers that an adapter may go around and the path of the
// last linear one, which is the model's output.
func (j *Job) adaptable(m *program.Model) (layers []program.Place, last string) {
	changed := quantizedLayers(m)
	if z := m.Pruned; z != nil {
		for _, p := range z.Layers {
			changed[p.Path] = p.Class
		}
	}
	m.Root.Walk(func(path string, c *program.Class) {
		if j.ofPrompts(path) {
			return
		}
		if isLinear(c) {
			last = path
		}
		if other := changed[path]; other != nil {
			c = other
		}
		if isLinear(c) || isConv(c) || isTable(c) {
			layers = append(layers, program.Place{Path: path, Class: c})
		}
	})
	return layers, last
}

// isLinear reports whether a class is a linear layer: of torch.nn, quantized, or
// the Conv1D of transformers, whose weight lies the other way round.
func isLinear(c *program.Class) bool { return c.Is().Linear }

func isConv1D(c *program.Class) bool { return c.Layer == nn.Conv1D }

func isConv(c *program.Class) bool { return c.Is().Conv > 0 }

func isTable(c *program.Class) bool { return c.Is().Table }

// loraArgs are the arguments of one layer's adapter.
type loraArgs struct {
	r              int64
	alpha, dropout float64
	rs, bias, dora bool
}

// scaling is by how much an adapter's part is multiplied.
func (a *loraArgs) scaling() float64 {
	if a.rs {
		return a.alpha / math.Sqrt(float64(a.r))
	}
	return a.alpha / float64(a.r)
}

// python prints the arguments for a script.
func (a *loraArgs) python() string {
	out := fmt.Sprintf("r=%d, alpha=%s, dropout=%s", a.r, program.Literal(a.alpha), program.Literal(a.dropout))
	for _, flag := range []struct {
		name string
		set  bool
	}{{"rslora", a.rs}, {"bias", a.bias}} {
		if flag.set {
			out += ", " + flag.name + "=True"
		}
	}
	return out
}

// loraTuner is the method of LoraConfig.
func (j *Job) loraTuner(l *spec.LoraConfig) *tuner {
	j.firstValues(l)
	if l.LoraBias.V && l.DoRA.V {
		j.fail(l.LoraBias.At, "lora_bias and use_dora exclude each other")
	}
	dropout := l.Dropout.V
	if j.Spec.Trainer.DisablesDropout() {
		if l.DoRA.V && dropout > 0 { // whose module stays a Dropout, so that the layer's own result is computed again
			j.fail(l.Dropout.At, "lora_dropout with use_dora and disable_dropout of DPOTrainer is not modelled; lora_dropout: 0 is")
		}
		dropout = 0
	}
	rank, alpha := j.patternOf(l.RankPattern, "rank_pattern"), j.patternOf(l.AlphaPattern, "alpha_pattern")
	return &tuner{
		name: "lora", at: l.At, targets: &l.Targets, task: l.TaskType, bias: l.Bias.V, defaults: loraTargets, lora: l,
		wrap: func(path string, base *program.Class, dtype tensor.DType) (*program.Class, string) {
			a := &loraArgs{
				r: int64(rank(path, float64(l.R.V))), alpha: alpha(path, l.Alpha.V), dropout: dropout,
				rs: l.RSLoRA.V, bias: l.LoraBias.V, dora: l.DoRA.V,
			}
			return j.adapted(path, base, dtype, a, l.At), a.python()
		},
	}
}

// firstValues reads init_lora_weights. Those that are computed from the weights
// take memory where these are.
func (j *Job) firstValues(l *spec.LoraConfig) {
	if l.Init == nil || l.Init.Kind == spec.Null || l.Init.Kind == spec.Bool {
		return
	}
	name, _ := j.Spec.Errs.Eval(l.Init, j.Spec.Env).(string)
	switch known, _, _ := strings.Cut(strings.ToLower(name), "_niter_"); known {
	case "gaussian", "orthogonal":
	case "pissa", "olora":
		if slices.ContainsFunc(j.Models, func(m Model) bool { return m.onDevice() }) {
			*j.NotModelled = append(*j.NotModelled, note.Asked.New("peft.lora.init_lora_weights: what %s computes of the weights on the GPU before the first step", name).Of("peft.lora.init_lora_weights"))
		}
	case "eva", "corda", "loftq", "lora_ga", "mica":
		*j.NotModelled = append(*j.NotModelled, note.Asked.New("peft.lora.init_lora_weights: what %s does before the first step", name).Of("peft.lora.init_lora_weights"))
	default:
		j.fail(l.Init.Span, "init_lora_weights must be true, false, gaussian, orthogonal, pissa, pissa_niter_N, olora, eva, corda, loftq, lora_ga or mica, not %s", l.Init.Describe())
	}
}

// adaptedClass is what the class of a layer with its adapter depends on.
type adaptedClass struct {
	base  *program.Class
	dtype tensor.DType
	args  loraArgs
}

// adapted is the class of a layer with its adapter, whose parameters have the given
// type; layers of one class have one.
func (j *Job) adapted(path string, base *program.Class, dtype tensor.DType, a *loraArgs, at spec.Span) *program.Class {
	return j.once(adaptedClass{base, dtype, *a}, func() *program.Class { return j.adaptedOnce(path, base, dtype, a, at) })
}

func (j *Job) adaptedOnce(path string, base *program.Class, dtype tensor.DType, a *loraArgs, at spec.Span) *program.Class {
	layer := nn.LoraLinear
	switch {
	case a.dora && base.Layer == nn.Linear4bit:
		layer = nn.DoraLinear4bit
	case base.Layer == nn.Linear4bit:
		layer = nn.LoraLinear4bit
	case base.Layer == nn.Linear8bit:
		layer = nn.LoraLinear8bit
	case isConv(base):
		layer = nn.LoraConv[base.Layer.Conv]
	case isTable(base):
		layer = nn.LoraEmbedding
	case a.dora:
		layer = nn.DoraLinear
	}
	defer j.replacing(at, "lora: "+path)
	b := &adapter{j.around(layer, base, dtype), a}
	if (a.dora || a.bias) && !isLinear(base) {
		b.Fail("", "use_dora and lora_bias are modelled for linear layers")
	}
	switch {
	case isLinear(base):
		b.linear(base)
	case isConv(base):
		b.conv(base)
	default:
		b.embedding(base)
	}
	return b.Class
}

// around begins the class of a layer that is put around another one.
func (j *Job) around(layer *nn.Layer, base *program.Class, dtype tensor.DType) replacement {
	env := *j.Env
	env.DType = dtype // of the adapters' parameters
	return replacement{module.NewBuilder(&env, &program.Class{
		Layer: layer, Python: layer.Python + "()", Children: []program.Child{{Path: program.BaseLayer, Class: base}},
	}, "x"), j.Batch}
}

// adapter is the class of a layer with its adapter while it is made.
type adapter struct {
	replacement
	*loraArgs
}

// base calls the layer itself; its result has the given size.
func (b *replacement) base(x value.Value, size ...int64) value.Value {
	t := &op.Tensor{Layout: tensor.Contiguous(tensor.D(append([]int64{b.batch}, size...)...)), DType: b.Env.Computed(b.DType())}
	return b.Let("result", value.Value{Expr: &program.Expr{Kind: program.CallMod, Child: 0, Args: []*program.Expr{x.Expr}}, Meta: value.Tensor(t)})
}

// dropout registers lora_dropout, which does nothing without a probability.
func (b *adapter) dropout(x value.Value) (int, []value.Value) {
	if b.loraArgs.dropout > 0 {
		return b.Child("lora_dropout", layers.Dropout, map[string]any{"p": b.loraArgs.dropout}, x)
	}
	return b.Child("lora_dropout", layers.Identity, nil, x)
}

// scaled is an adapter's part times alpha / r.
func (b *adapter) scaled(v value.Value) value.Value { return b.scaledIn(b.Builder, v) }

func (b *adapter) scaledIn(f *module.Builder, v value.Value) value.Value {
	return f.Do(aten.Mul, &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: b.scaling()}}, v)
}

// linear is peft.tuners.lora.layer.Linear, or one of its forms around a
// quantized layer (peft/tuners/lora/bnb.py), which convert outside of autocast
// alone and, around four bits, copy the result before they add to it.
func (b *adapter) linear(base *program.Class) {
	in, out := linearSize(base)
	plain := quantizedLinear(base)
	x := b.input(in)
	drop, dropped := b.dropout(x)
	down, _ := b.Child("lora_A", layers.Linear, map[string]any{"out_features": b.r, "bias": false}, x)
	up, _ := b.Child("lora_B", layers.Linear, map[string]any{"out_features": out, "bias": b.bias}, b.input(b.r))
	result := b.base(x, out)
	if fourBits(base) {
		result = b.Let("result", b.Do(aten.Clone, nil, result))
	}
	dtype := b.Let("dtype", b.Do(aten.DTypeOf, nil, result))
	x = b.Let("x", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: plain}, x, b.Own("lora_A.weight", b.Env.Computed(b.DType()), []int64{b.r, in})))
	if b.dora {
		result = b.Let("result", b.doraLinear(base, x, result, drop, dropped, down, up))
		b.Finish(b.Let("result", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: plain}, result, dtype)))
		return
	}
	y := b.CallChild(drop, dropped, x)
	y = b.CallChild(down, []value.Value{b.input(b.r)}, y)
	y = b.scaled(b.CallChild(up, []value.Value{b.input(out)}, y))
	if plain {
		y = b.Let("output", y)
		y = b.Let("output", b.Do(aten.ToTypeOf, &aten.ToTypeOfArgs{Plain: true}, y, dtype))
		b.Finish(b.Let("result", b.Do(aten.Add, &aten.AddArgs{}, result, y)))
		return
	}
	result = b.Let("result", b.Do(aten.Add, &aten.AddArgs{}, result, y))
	b.Finish(b.Let("result", b.Do(aten.ToTypeOf, nil, result, dtype)))
}

// weightSize is the shape of a layer's weight, masked or not.
func weightSize(c *program.Class) []int64 {
	for _, name := range []string{"weight", "weight_orig"} {
		if p := c.FindParam(name); p != nil {
			return p.Size
		}
	}
	panic("techniques: " + c.Describe() + " has no weight")
}

// linearSize is the number of input and output features of a linear layer.
func linearSize(c *program.Class) (in, out int64) {
	size := weightSize(c)
	switch {
	case isConv1D(c):
		return size[0], size[1]
	case quantizedLinear(c):
		return c.Quantized.In, c.Quantized.Out
	}
	return size[1], size[0]
}

// conv is peft.tuners.lora.layer.Conv1d to Conv3d: a convolution like the
// layer's to r channels, and one over single points.
func (b *adapter) conv(base *program.Class) {
	conv := layers.Convs[base.Layer.Conv]
	ret := base.Forward.Body[len(base.Forward.Body)-1].Value
	o, ok := ret.OpArgs.(*aten.ConvOptions)
	if !ok || ret.Args[0].Kind != program.Local {
		b.Fail("", "an adapter around a convolution that pads by itself is not modelled")
	}
	for _, d := range o.Dilation {
		ok = ok && d == 1
	}
	if !ok || o.Groups != 1 {
		b.Fail("", "an adapter around a convolution with groups or dilation is not modelled")
	}
	size := weightSize(base)
	kernel := size[2:]
	image := func(channels int64) value.Value { return b.input(append([]int64{channels}, kernel...)...) }
	x := image(size[1])
	drop, dropped := b.dropout(x)
	down, _ := b.Child("lora_A", conv, map[string]any{
		"out_channels": b.r, "kernel_size": kernel, "stride": o.Stride, "padding": o.Padding, "bias": false,
	}, x)
	one := make([]int64, len(kernel))
	for i := range one {
		one[i] = 1
	}
	up, _ := b.Child("lora_B", conv, map[string]any{"out_channels": size[0], "kernel_size": one, "bias": false}, image(b.r))
	result := b.base(x, append([]int64{size[0]}, kernel...)...)
	dtype := b.Let("dtype", b.Do(aten.DTypeOf, nil, result))
	x = b.Let("x", b.Do(aten.ToTypeOf, nil, x, b.Own("lora_A.weight", b.Env.Computed(b.DType()), append([]int64{b.r, size[1]}, kernel...))))
	y := b.CallChild(drop, dropped, x)
	y = b.CallChild(down, []value.Value{image(b.r)}, y)
	y = b.scaled(b.CallChild(up, []value.Value{image(size[0])}, y))
	result = b.Let("result", b.Do(aten.Add, &aten.AddArgs{}, result, y))
	b.Finish(b.Let("result", b.Do(aten.ToTypeOf, nil, result, dtype)))
}

// embedding is peft.tuners.lora.layer.Embedding: the adapter's own table
// of r columns, and a matrix.
func (b *adapter) embedding(base *program.Class) {
	ret := base.Forward.Body[len(base.Forward.Body)-1].Value
	size := base.Params[0].Size
	t := &op.Tensor{Layout: tensor.Contiguous(tensor.D(b.batch)), DType: tensor.Int64}
	x := value.Value{Expr: &program.Expr{Kind: program.Local, Slot: 0}, Meta: value.Tensor(t)}
	down, up := b.Param("lora_embedding_A", b.r, size[0]), b.Param("lora_embedding_B", size[1], b.r)
	result := b.base(x, size[1])
	dtype := b.Let("dtype", b.Do(aten.DTypeOf, nil, result))
	first := b.Let("embedding_A", b.Do(aten.T, nil, down))
	second := b.Let("embedding_B", b.Do(aten.T, nil, up))
	after := b.Let("after_A", b.Do(ret.Row, ret.OpArgs, x, first))
	y := b.scaled(b.Do(aten.Matmul, nil, after, second))
	result = b.Let("result", b.Do(aten.Add, &aten.AddArgs{}, result, y))
	b.Finish(b.Let("result", b.Do(aten.ToTypeOf, nil, result, dtype)))
}

// savedModules wraps the modules that are trained as a whole
// (peft.utils.other.ModulesToSaveWrapper).
func (j *Job) savedModules(m *program.Model, a *program.Adapters, at spec.Span) {
	if len(a.Modules) == 0 {
		return
	}
	adapted := map[string]bool{}
	for _, p := range a.Layers {
		adapted[p.Path] = true
	}
	m.Root.Walk(func(path string, saved *program.Class) {
		if path == "" || !a.Modules.Fits(path) {
			return
		}
		if adapted[path] {
			j.fail(at, "lora: %s has an adapter and is among modules_to_save, too", path)
		}
		if q := m.Quantized; q != nil {
			for _, p := range q.Layers {
				if p.Path == path || strings.HasPrefix(p.Path, path+".") {
					j.fail(at, "lora: %s is quantized and among modules_to_save, too; only tensors of a floating-point type can require gradients, PyTorch says (except: of quantize leaves it out)", p.Path)
				}
			}
		}
		if z := m.Pruned; z != nil {
			for _, p := range z.Layers {
				if p.Path == path || strings.HasPrefix(p.Path, path+".") {
					j.fail(at, "lora: %s is pruned and among modules_to_save, too; its masked weight is computed, and PyTorch copies only tensors that are not", p.Path)
				}
			}
		}
		f := saved.Forward
		w := &program.Class{Layer: nn.ModulesToSave, Python: nn.ModulesToSave.Python + "()", Children: []program.Child{{Path: program.OriginalModule, Class: saved}, {Path: program.ModulesToSave, Class: saved}}}
		call := &program.Expr{Kind: program.CallMod, Child: 1}
		w.Forward = &program.Func{Name: "forward", Kind: program.Module, Params: f.Params, Slots: f.Slots[:f.Params:f.Params]}
		for i := range f.Params {
			call.Args = append(call.Args, &program.Expr{Kind: program.Local, Slot: i})
		}
		w.Forward.Body = []program.Stmt{{Kind: program.Return, Value: call}}
		a.Saved = append(a.Saved, program.Place{Path: path, Class: w})
	})
}
