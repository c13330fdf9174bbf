package techniques

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Adapters of parameters (ParamWrapper in peft/tuners/lora/layer.py) go around the module
// that holds the parameter, one around another if it holds several. While the module runs,
// a parametrization (torch.nn.utils.parametrize) stands for the parameter: the sum of it and
// of what its adapter adds, which is computed when it is first used, and kept until the
// outermost wrapper is done.

// parameters puts the adapters of target_parameters around the modules of a model.
func (j *Job) parameters(m *Model, pm *program.Model, t *tuner, a *program.Adapters, groups *adapterGroups, autocast bool) {
	v := t.lora.TargetParameters
	list, lone := j.Spec.Errs.Strings(v, "target_parameters", j.Spec.Env)
	if lone {
		j.fail(v.Span, "target_parameters must be a list of names, not %s", v.Describe())
	}
	list = append(slices.Clone(list), t.parameters...)
	if len(list) == 0 {
		return
	}
	j.refuseWithParameters(t, list)
	unmatched := slices.Clone(list)
	adapted := map[string]bool{}
	for _, l := range a.Layers {
		adapted[l.Path] = true
	}
	quantized := quantizedLayers(pm)
	pm.Root.Walk(func(path string, c *program.Class) {
		if path == "" {
			return
		}
		var found []int
		for i, p := range c.Params {
			key := path + "." + p.Name
			fits := func(n spec.String) bool { return key == n.V || strings.HasSuffix(key, "."+n.V) }
			if slices.ContainsFunc(list, fits) {
				found = append(found, i)
				unmatched = slices.DeleteFunc(unmatched, fits)
			}
		}
		if len(found) == 0 {
			return
		}
		if adapted[path] {
			j.fail(list[0].At, "target_parameters: %s is among target_modules, too, with which PEFT fails", path)
		}
		var class *program.Class
		var args string
		if q := quantized[path]; q != nil { // which PEFT takes for the layer
			class, args = t.wrap(path, q, j.adapterType(q.AdapterType(q.Params[0].DType), autocast, a.Lower))
		} else {
			class, args = j.parametrized(m, t, path, c, found, autocast, a.Lower)
		}
		a.Layers = append(a.Layers, program.Place{Path: path, Class: class})
		groups.add(path, class, args)
	})
	for _, n := range unmatched {
		*j.Warnings = append(*j.Warnings, note.FitsNothing.New("target_parameters: no parameter is named %q", n.V).Of("peft"))
	}
	if len(a.Layers) == 0 {
		j.fail(list[0].At, "%s: target_parameters fit no parameter of the model, and target_modules no module, with which PEFT fails", t.name)
	}
}

// refuseWithParameters refuses what ParamWrapper refuses, and what is not modelled with it.
func (j *Job) refuseWithParameters(t *tuner, list []spec.String) {
	l := t.lora
	for _, refused := range []struct {
		at  spec.Span
		key string
		is  bool
	}{{l.Dropout.At, "lora_dropout", l.Dropout.V > 0 && t.dropout}, {l.LoraBias.At, "lora_bias", l.LoraBias.V}, {l.DoRA.At, "use_dora", l.DoRA.V}} {
		switch {
		case refused.is && len(t.parameters) > 0:
			j.fail(refused.at, "%s: PEFT refuses it with adapters of parameters, which %s are; remove it, or take these names out of target_modules", refused.key, t.old)
		case refused.is:
			j.fail(refused.at, "%s: PEFT refuses it with adapters of parameters; remove it, or target_parameters", refused.key)
		}
	}
	if tr := j.Spec.Trainer; tr != nil && tr.DPO != nil {
		j.fail(list[0].At, "target_parameters with trainer: dpo is not modelled; name modules in target_modules")
	}
}

// parametrized is the class of a module some of whose parameters have adapters, and how a
// script makes it.
func (j *Job) parametrized(m *Model, t *tuner, path string, c *program.Class, params []int, autocast, lower bool) (*program.Class, string) {
	at := t.lora.At
	defer j.replacing(at, "lora: "+path)
	rank, alpha := j.patternOf(t.lora.RankPattern, "rank_pattern"), j.patternOf(t.lora.AlphaPattern, "alpha_pattern")
	class := j.computed(c, params, at)
	var args []string
	for i, k := range params {
		p := &c.Params[k]
		key := path + "." + p.Name
		times := float64(max(1, t.joined[p.Name]))
		a := &loraArgs{r: int64(rank(key, times*float64(t.lora.R.V))), alpha: alpha(key, times*t.lora.Alpha.V), rs: t.lora.RSLoRA.V}
		class = j.wrapper(class, c, p, a, j.adapterType(p.DType, autocast, lower), len(params), i, m.Type == "gpt_oss")
		transposed := ""
		if m.Type == "gpt_oss" {
			transposed = ", transposed=True"
		}
		args = append(args, fmt.Sprintf("(%s, dict(%s%s))", program.Literal(p.Name), strings.Replace(a.python(), ", dropout=0.0", "", 1), transposed))
	}
	return class, strings.Join(args, ", ")
}

// computed is the class of a module that takes what is added to its parameters behind its
// other arguments, the last parameter's first, and returns the sums, too.
func (j *Job) computed(c *program.Class, params []int, at spec.Span) *program.Class {
	own, f, n := *c, *c.Forward, len(params)
	if results(c) == 0 {
		j.fail(at, "adapters of parameters of %s, which returns before its end, are not modelled", c.Describe())
	}
	old := f.Params
	f.Params += n
	var deltas, sums []string
	for _, k := range params {
		own.Parametrized = append(own.Parametrized, c.Params[k].Name)
		deltas = append([]string{"delta_" + c.Params[k].Name}, deltas...)
		sums = append(sums, "cached_"+c.Params[k].Name)
	}
	f.Slots = slices.Concat(f.Slots[:old], deltas, f.Slots[old:], sums)
	shift := func(slot int) int {
		if slot >= old {
			slot += n
		}
		return slot
	}
	var moved func(e *program.Expr) *program.Expr
	moved = func(e *program.Expr) *program.Expr {
		if e == nil {
			return nil
		}
		out := *e
		switch e.Kind {
		case program.Local, program.Item, program.Pop:
			out.Slot = shift(e.Slot)
		case program.CallFun:
			for _, k := range params {
				if readsIn(e.Func, c.Params[k].Name) {
					j.fail(at, "adapters of parameters that functions of %s read are not modelled", c.Describe())
				}
			}
		case program.Attr:
			if i := slices.IndexFunc(params, func(k int) bool { return c.Params[k].Name == e.Path }); i >= 0 {
				return &program.Expr{Kind: program.Local, Slot: len(f.Slots) - n + i}
			}
		}
		out.Args = make([]*program.Expr, len(e.Args))
		for i, a := range e.Args {
			out.Args[i] = moved(a)
		}
		return &out
	}
	body := f.Body
	f.Body = nil
	seen := map[int]bool{}
	for _, st := range body {
		for i, k := range params { // the first use computes the sum
			if !seen[i] && reads(&st, c.Params[k].Name) {
				seen[i] = true
				f.Body = append(f.Body, program.Stmt{Kind: program.Assign, Targets: []int{len(f.Slots) - n + i}, Value: sum(c.Params[k].Name, old+n-1-i), Line: st.Line})
			}
		}
		st.Value, st.Requires = moved(st.Value), moved(st.Requires)
		st.Values = slices.Clone(st.Values)
		for i := range st.Values {
			st.Values[i] = moved(st.Values[i])
		}
		st.Targets = slices.Clone(st.Targets)
		for i := range st.Targets {
			st.Targets[i] = shift(st.Targets[i])
		}
		f.Body = append(f.Body, st)
	}
	ret := &f.Body[len(f.Body)-1]
	switch {
	case ret.Value != nil && ret.Value.Kind == program.TupleLit:
		ret.Values = slices.Clone(ret.Value.Args)
	case ret.Value != nil:
		ret.Values = []*program.Expr{ret.Value}
	}
	ret.Value = nil
	for i := range params {
		if !seen[i] {
			j.fail(at, "adapters of a parameter that %s does not use are not modelled", c.Describe())
		}
		ret.Values = append(ret.Values, &program.Expr{Kind: program.Local, Slot: len(f.Slots) - n + i})
	}
	own.Forward = &f
	return &own
}

// computedIn are the forwards of the modules of an evaluation's model whose parameters have
// adapters.
func (j *Job) computedIn(root *program.Class, a *program.Adapters) (out []program.Fused) {
	within := map[string]*program.Class{}
	root.Walk(func(path string, c *program.Class) { within[path] = c })
	for _, l := range a.Layers {
		path, class := l.Path, l.Class
		for class.Child(program.BaseLayer) >= 0 {
			path, class = path+"."+program.BaseLayer, class.Children[class.Child(program.BaseLayer)].Class
		}
		if c := within[l.Path]; c != nil && class.Parametrized != nil {
			var params []int
			for i, p := range c.Params {
				if slices.Contains(class.Parametrized, p.Name) {
					params = append(params, i)
				}
			}
			out = append(out, program.Fused{Path: path, Class: c, Forward: j.computed(c, params, j.Spec.PEFT.At).Forward})
		}
	}
	return out
}

// results is how many tensors the forward of a class returns, at its end alone; otherwise 0.
func results(c *program.Class) int {
	body := c.Forward.Body
	for _, st := range body[:len(body)-1] {
		if st.Kind == program.Return || st.Kind == program.FastReturn {
			return 0
		}
	}
	switch st := body[len(body)-1]; {
	case st.Kind != program.Return:
		return 0
	case st.Value == nil:
		return len(st.Values)
	case st.Value.Kind == program.TupleLit:
		return len(st.Value.Args)
	}
	return 1
}

// reads reports whether a statement reads a parameter of its module.
func reads(st *program.Stmt, name string) (found bool) {
	for _, e := range append([]*program.Expr{st.Value}, st.Values...) {
		e.Walk(func(e *program.Expr) { found = found || e.Kind == program.Attr && e.Path == name })
	}
	return found
}

// readsIn reports whether a function, or one that it calls, does.
func readsIn(f *program.Func, name string) bool {
	return slices.ContainsFunc(f.Body, func(st program.Stmt) bool {
		found := reads(&st, name)
		for _, e := range append([]*program.Expr{st.Value}, st.Values...) {
			e.Walk(func(e *program.Expr) { found = found || e.Kind == program.CallFun && readsIn(e.Func, name) })
		}
		return found
	})
}

// sum is a parameter and what is added to it.
func sum(name string, delta int) *program.Expr {
	return &program.Expr{Kind: program.CallOp, Row: aten.Add, OpArgs: &aten.AddArgs{}, Inputs: []int{0, 1},
		Args: []*program.Expr{{Kind: program.Attr, Path: name}, {Kind: program.Local, Slot: delta}}}
}

// wrapper is the class that goes around a module, or around the wrapper of the parameter
// before; it is the i-th of n.
func (j *Job) wrapper(inner, base *program.Class, p *program.Param, a *loraArgs, dtype tensor.DType, n, i int, transposed bool) *program.Class {
	env := *j.Env
	env.DType = dtype
	inputs := slices.Clone(base.Forward.Slots[:base.Forward.Params])
	for k := n - 1; k > i; k-- {
		inputs = append(inputs, fmt.Sprintf("outer_%d", k))
	}
	b := &adapter{replacement{module.NewBuilder(&env, &program.Class{
		Layer: nn.LoraParameter, Python: nn.LoraParameter.Python + "()", Children: []program.Child{{Path: program.BaseLayer, Class: inner}},
	}, inputs...), j.Batch}, a}
	experts, in, out := int64(1), int64(0), int64(0)
	switch size := p.Size; {
	case len(size) == 2:
		out, in = size[0], size[1]
	case len(size) == 3 && transposed:
		experts, in, out = size[0], size[1], size[2]
	case len(size) == 3:
		experts, out, in = size[0], size[1], size[2]
	default:
		b.Fail("", "target_parameters: %s is of shape %s; PEFT takes those of 2 or 3 dimensions", p.Name, tensor.SizeString(size))
	}
	b.dropout(b.input(in))
	b.Child("lora_A", layers.Linear, map[string]any{"out_features": a.r * experts, "bias": false}, b.input(in))
	b.Child("lora_B", layers.Linear, map[string]any{"out_features": out, "bias": false}, b.input(a.r*experts))
	down, up := b.Own("lora_A.weight", dtype, []int64{a.r * experts, in}), b.Own("lora_B.weight", dtype, []int64{out, a.r * experts})
	weight := b.Own(program.BaseLayer+"."+p.Name, p.DType, p.Size)
	delta := b.Let("delta_weight", b.Inline("get_delta_weight", nil, nil, func(f *module.Builder, _ []value.Value) []value.Value {
		var d value.Value
		if experts == 1 {
			d = f.Do(aten.Matmul, nil, up, down)
		} else {
			rows := f.Let("weight_A", f.Do(aten.Reshape, &aten.ShapeArgs{Shape: []int64{experts, -1, in}}, down))
			cols := f.Let("weight_B", f.Do(aten.Reshape, &aten.ShapeArgs{Shape: []int64{out, -1, experts}}, up))
			equation := "o r e, e r i -> e o i"
			if transposed {
				equation = "o r e, e r i -> e i o"
			}
			d = f.Do(aten.Einsum, &aten.EinsumArgs{Equation: equation}, cols, rows)
		}
		d = f.Let("delta_weight", b.scaledIn(f, d))
		return []value.Value{f.Let("delta_weight", f.Do(aten.ToTypeOf, nil, d, weight))}
	}))
	// ParametrizationList tries the parametrization.
	b.Emit(program.Stmt{Kind: program.Expression, Value: &program.Expr{Kind: program.CallOp, Row: aten.Add, OpArgs: &aten.AddArgs{}, Inputs: []int{0, 1}, Args: []*program.Expr{weight.Expr, delta.Expr}}})
	call := &program.Expr{Kind: program.CallMod, Child: 0}
	for k := range inputs {
		call.Args = append(call.Args, &program.Expr{Kind: program.Local, Slot: k})
	}
	call.Args = append(call.Args, delta.Expr)
	returned := results(base)
	var names []string
	for k := range returned {
		names = append(names, fmt.Sprintf("result_%d", k))
	}
	for k := range n {
		names = append(names, fmt.Sprintf("cached_%d", k))
	}
	metas := make([]value.Value, len(names))
	for k := range metas {
		metas[k] = weight
	}
	all := b.LetAll(names, value.Value{Expr: call, Meta: value.Returned(metas)})
	if i == n-1 { // where the cache ends
		for _, v := range all[returned:] {
			drop(b.Builder, v)
		}
		all = all[:returned]
	}
	drop(b.Builder, delta)
	b.Finish(all...)
	return b.Class
}
