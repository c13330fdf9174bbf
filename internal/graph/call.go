package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// call evaluates an entry that calls something: a layer, an operator, a block,
// a declared module.
func (f *fn) call(e *spec.Entry, sc *scope, i int) value.Value {
	el := f.u.el
	switch head := e.Head.V; {
	case el.isBad(e):
		panic(spec.Stop{})
	case head == spec.HeadBlock:
		return f.callBlock(e, sc, i)
	case head == spec.HeadForward:
		return f.forward(e, sc)
	case head == spec.HeadGrad:
		return f.autogradGrad(e, sc)
	case head == spec.HeadConvert:
		return f.convertOutputs(e, sc)
	case head == spec.HeadCall:
		return f.checkpointed(e.Checkpoint, sc, f.callDeclared(e, sc))
	case head == spec.HeadSeq || layers.Lookup(head) != nil:
		return f.callNew(e, sc, i)
	case aten.Lookup(head) != nil:
		return f.callOp(e, sc, aten.Lookup(head))
	}
	el.errs.Unknown(e.Head.At, "layer or operator", e.Head.V, nil)
	panic(spec.Stop{})
}

// layerInputs evaluates the inputs of a layer, which its argument may name:
// {CrossEntropyLoss: {target: label}} takes the previous value and label.
func (f *fn) layerInputs(e *spec.Entry, sc *scope, l *module.Layer, arg *spec.Value) []value.Value {
	names := make([]string, len(l.InputNames()))
	for i, name := range l.InputNames() {
		names[i] = strings.TrimSuffix(name, "?")
	}
	given, named := f.given(e, l.Name(), names, nil)
	if arg != nil && arg.Kind == spec.Map {
		for _, p := range arg.Pairs {
			if !l.Takes(p.Key.Str) {
				continue
			}
			o := f.u.el.spec.Operand(p.Value)
			switch {
			case o == nil:
				panic(spec.Stop{})
			case named[p.Key.Str] != nil:
				f.u.el.fail(p.Key.Span, "input %s of %s is given twice", p.Key.Str, l.Name())
			}
			named[p.Key.Str] = o
		}
	}
	if len(named) == 0 {
		return f.inputs(e, sc, l.Name(), names, nil)
	}
	var ins []value.Value
	one := func(name string) {
		name, optional := strings.CutSuffix(name, "?")
		switch o := named[name]; {
		case o != nil && o.Value != nil && o.Value.Kind == spec.Null && optional:
			ins = append(ins, value.Value{})
		case o != nil:
			ins = append(ins, f.operand(o, sc))
		case len(given) > 0:
			o := given[0]
			given = given[1:]
			ins = append(ins, f.operand(o, sc))
		case len(ins) == 0 && !e.HasIn:
			ins = append(ins, f.previous(e))
		case optional:
			ins = append(ins, value.Value{})
		default:
			f.u.el.fail(e.At, "%s needs %s", l.Name(), name)
		}
	}
	failed := false
	for i, name := range l.InputNames() {
		if !f.u.el.attempt(func() { one(name) }) {
			failed = true
		}
		if len(ins) == i { // for those behind it
			ins = append(ins, value.Value{Meta: value.Meta{Lost: true}})
		}
	}
	if failed {
		panic(spec.Stop{})
	}
	if len(given) > 0 {
		f.u.el.fail(e.At, "%s takes %s (%s), but more are given", l.Name(), spec.Plural(len(l.InputNames()), "input"), strings.Join(l.InputNames(), ", "))
	}
	return ins
}

// callNew makes a module and calls it; if a module of that path exists, that
// one is called again.
func (f *fn) callNew(e *spec.Entry, sc *scope, i int) value.Value {
	var ins []value.Value
	if l := layers.Lookup(e.Head.V); l == nil {
		ins = f.inputs(e, sc, f.callee(e, sc), f.inputNames(e, sc), nil)
	} else if !f.u.el.attempt(func() { ins = f.layerInputs(e, sc, l, e.Arg) }) {
		f.u.arguments(e, sc, l, nil) // which may have mistakes, too
		panic(spec.Stop{})
	}
	return f.callModule(e, sc, f.u.modulePath(e, sc, i), ins, nil, e.At)
}

// callDeclared calls a module by its path.
func (f *fn) callDeclared(e *spec.Entry, sc *scope) value.Value {
	el := f.u.el
	if e.Arg == nil {
		el.fail(e.Head.At, "call needs the path of a module")
	}
	at, kwargs := e.Arg, (*spec.Value)(nil)
	if e.Arg.Kind == spec.Map && len(e.Arg.Pairs) == 1 { // call: {attn: {need_weights: false}}
		at, kwargs = e.Arg.Pairs[0].Key, e.Arg.Pairs[0].Value
		if kwargs.Kind != spec.Map {
			el.fail(kwargs.Span, "arguments beside the path of a module are given by name, {call: {%s: {name: value}}}; tensors by position stand in inputs:", at.Str)
		}
	}
	s := at.Str
	if at.IsExpr() {
		s = el.evalStr(at, sc, "call")
	}
	path := strings.Join(spec.PathParts(f.loopedModule(s, sc)), ".")
	idx, ok := f.u.children[path]
	if !ok {
		var known []string
		for _, c := range f.u.class.Children {
			known = append(known, c.Path)
		}
		if f.u.lost { // perhaps it is not made for a mistake
			panic(spec.Stop{})
		}
		if items := f.u.listed(s); len(items) > 0 {
			el.fail(at.Span, "%s", f.u.example(s, items))
		}
		el.errs.Unknown(at.Span, "module", s, known)
		panic(spec.Stop{})
	}
	if d := f.u.declared[path]; d != nil {
		return f.callModule(d.entry, d.scope, path, f.declaredInputs(e, sc, d, kwargs), kwargs, e.At)
	}
	return f.again(e, idx, f.declaredInputs(e, sc, f.u.made[idx], kwargs), kwargs)
}

// declaredInputs evaluates the inputs of a call of the module that d declares, which
// the keyword arguments may name.
func (f *fn) declaredInputs(e *spec.Entry, sc *scope, d *declared, kwargs *spec.Value) []value.Value {
	if l := layers.Lookup(d.entry.Head.V); l != nil {
		return f.layerInputs(e, sc, l, kwargs)
	}
	return f.inputs(e, sc, f.callee(d.entry, d.scope), f.inputNames(d.entry, d.scope), kwargs)
}

// callee says what a block or Sequential that an entry makes is called in messages.
func (f *fn) callee(e *spec.Entry, sc *scope) string {
	if e.Head.V == spec.HeadBlock {
		return "block " + f.u.findBlock(e, sc).Name.V
	}
	return e.Head.V
}

// inputNames are the names of the inputs of the block or Sequential that an entry makes.
func (f *fn) inputNames(e *spec.Entry, sc *scope) []string {
	if e.Head.V == spec.HeadBlock {
		return inputNames(f.u.findBlock(e, sc).V)
	}
	return []string{"input"}
}

// again calls a module that was made by an earlier entry.
func (f *fn) again(e *spec.Entry, idx int, ins []value.Value, kwargs *spec.Value) value.Value {
	src := f.u.made[idx]
	return f.callModule(src.entry, src.scope, f.u.class.Children[idx].Path, ins, kwargs, e.At)
}

// callModule elaborates the module that entry e describes, for inputs ins, and
// calls it under path; at is the entry that calls it. A module that exists
// already must come out the same.
func (f *fn) callModule(e *spec.Entry, sc *scope, path string, ins []value.Value, kwargs *spec.Value, at spec.Span) value.Value {
	el := f.u.el
	if el.isBad(e) {
		panic(spec.Stop{})
	}
	l := layers.Lookup(e.Head.V)
	for i, v := range ins {
		switch {
		case l == nil || v.Absent() || v.Meta.Tensor != nil || l.Tuples && v.Meta.Tuple != nil:
		case v.Meta.None && i < len(l.InputNames()) && strings.HasSuffix(l.InputNames()[i], "?"):
			ins[i] = value.Value{}
		default:
			el.fail(at, "%s takes tensors, not %s", e.Head.V, v.Describe())
		}
	}
	var class *program.Class
	var rets []value.Value
	var keywords []spec.String // of the last inputs
	outer, dtype := el.path, el.job.DType
	el.path = program.Join(outer, path)
	el.job.DType = el.moduleType(e, sc)
	defer func() { el.path, el.job.DType = outer, dtype }()
	apart := el.shardedApart(outer, el.path)
	if apart.first {
		ins = el.castInputs(ins)
	}
	switch {
	case e.Head.V == spec.HeadSeq:
		ins = el.prepareInputs(ins, at)
		class, rets = f.u.sequential(e, sc, ins)
		rets = el.prepareResults(class, rets, at)
	case e.Head.V == spec.HeadBlock:
		b := f.u.findBlock(e, sc)
		if b.V.Kind.V != spec.KindModule {
			el.fail(e.At, "block %q is a function, not a module", b.Name.V)
		}
		keywords = b.V.Keywords
		given := ins
		ins = el.prepareInputs(ins, at)
		class, rets = el.block(b, f.u, f.u.with(e, sc, b), ins, at)
		ins = given
		rets = el.prepareResults(class, rets, at)
	case l != nil:
		class, rets = f.u.layer(e, sc, l, ins, kwargs, at)
	default:
		el.errs.Unknown(e.Head.At, "layer", e.Head.V, nil)
		panic(spec.Stop{})
	}
	if apart.last {
		rets = el.castResults(rets)
	}
	idx, ok := f.u.children[path]
	if !ok {
		idx = f.u.child(path, at)
	}
	ch := &f.u.class.Children[idx]
	x := &program.Expr{Kind: program.CallMod, Child: idx}
	switch {
	case ch.Class == nil:
		ch.Class = class
		ch.Ties = f.u.ties(e, sc, class)
		if f.u.made == nil {
			f.u.made = map[int]*declared{}
		}
		f.u.made[idx] = &declared{e, sc}
	case same(ch.Class, class):
	case l != nil && sameModule(ch.Class, class):
		x.Forward = class.Forward
	case f.u.made[idx].entry != e:
		el.fail(at, "module %q is %s already; this entry makes %s of it", path, ch.Class.Describe(), class.Describe())
	case ch.Class.Describe() == class.Describe():
		el.fail(at, "module %q is called here with other inputs than before (a mask or none, say), with which %s runs other code; declare it twice", path, class.Describe())
	default:
		el.fail(at, "module %q was made as %s and is called here with an input for which it would have to be %s", path, ch.Class.Describe(), class.Describe())
	}
	for i, v := range ins {
		if v.Absent() {
			continue
		}
		x.Args = append(x.Args, v.Expr)
		if l != nil && l.ByKeyword(i) {
			for len(x.Names) < len(x.Args)-1 {
				x.Names = append(x.Names, "")
			}
			x.Names = append(x.Names, strings.TrimSuffix(l.InputNames()[i], "?"))
		}
	}
	if n := len(keywords); n > 0 {
		x.Names = make([]string, len(x.Args)-n)
		for _, k := range keywords {
			x.Names = append(x.Names, k.V)
		}
	}
	el.bound(class.Forward, class, at)
	return f.checkpointed(e.Checkpoint, sc, value.Value{Expr: x, Meta: value.Returned(rets)})
}

// moduleType is the type of the floating-point parameters and buffers of the
// module at el.path, which an entry makes: what it was converted to after it was loaded,
// its own, or that of the module it is in.
func (el *elaborator) moduleType(e *spec.Entry, sc *scope) tensor.DType {
	if el.loaded != nil {
		if d, ok := program.Converted(el.loaded.Convert, append(el.tied[el.path], el.path)...); ok {
			return d
		}
	}
	if e.DType == nil {
		return el.job.DType
	}
	name := el.evalStr(e.DType, sc, "dtype")
	d := el.errs.DType(spec.String{V: name, At: e.DType.Span})
	if !d.IsFloating() {
		el.fail(e.DType.Span, "a module is converted to a floating-point type, not to %v", d)
	}
	return d
}

// paramPaths lists the parameters of the modules that are there so far.
func (u *unit) paramPaths() []string {
	var out []string
	for _, p := range u.class.Params {
		out = append(out, p.Name)
	}
	for _, ch := range u.class.Children {
		if ch.Class == nil {
			continue
		}
		for _, p := range ch.Class.ParamNames() {
			out = append(out, ch.Path+"."+p)
		}
	}
	return out
}

// ties resolves tie: of an entry.
func (u *unit) ties(e *spec.Entry, sc *scope, class *program.Class) []program.Tie {
	var out []program.Tie
	for _, t := range e.Tie {
		x := u.el.eval(t.Source, sc)
		if x == nil { // tied on a condition that does not hold
			continue
		}
		src, ok := x.(string)
		if !ok {
			u.el.fail(t.Source.Span, "tie needs the path of a parameter")
		}
		p := class.FindParam(t.Param.V)
		if p == nil {
			u.el.errs.Unknown(t.Param.At, "parameter", t.Param.V, class.ParamNames())
			panic(spec.Stop{})
		}
		tie := program.Tie{Param: t.Param.V, Source: strings.Join(spec.PathParts(src), ".")}
		if i, declared := u.children[spec.PathParts(src)[0]]; declared && u.class.Children[i].Class == nil {
			u.later = append(u.later, func() { u.tied(t, src, p) }) // nothing has called that module yet
			out = append(out, tie)
			continue
		}
		u.tied(t, src, p)
		out = append(out, tie)
	}
	return out
}

// tied checks that a parameter may be the one at another path.
func (u *unit) tied(t spec.Tie, src string, p *program.Param) {
	v, ok := u.attribute(src)
	if !ok && u.lost {
		panic(spec.Stop{})
	}
	if !ok {
		known := u.paramPaths()
		if len(known) == 0 {
			u.el.fail(t.Source.Span, "no parameter %q; a tie names one of a module that comes before, and none does", src)
		}
		u.el.errs.Unknown(t.Source.Span, "parameter", src, known)
		panic(spec.Stop{})
	}
	if !u.el.loaded.TrainsCopies() && u.el.env().Computed(p.DType) != v.Meta.Tensor.DType {
		u.el.fail(t.Source.Span, "%s has dtype %v, but %s has dtype %v; shared parameters have one dtype", src, v.Meta.Tensor.DType, t.Param.V, p.DType)
	}
	if size := tensor.D(p.Size...); v.Meta.Tensor.Size != size {
		u.el.fail(t.Source.Span, "%s has shape %v, but %s has shape %v", src, v.Meta.Tensor.Size, t.Param.V, size)
	}
}

// with evaluates with: of an entry for block b.
func (u *unit) with(e *spec.Entry, sc *scope, b *spec.Named[spec.Block]) map[string]any {
	if !u.el.checkWith(e, b.Name.V, b.V) {
		panic(spec.Stop{})
	}
	out := map[string]any{}
	if e.With != nil {
		for _, p := range e.With.Pairs {
			out[p.Key.Str] = u.el.eval(p.Value, sc)
		}
	}
	return out
}

func (u *unit) findBlock(e *spec.Entry, sc *scope) *spec.Named[spec.Block] {
	if e.Arg == nil {
		u.el.fail(e.Head.At, "block needs the name of a block")
	}
	name := u.el.evalStr(e.Arg, sc, "block")
	b, ok := u.blocks[name]
	if !ok {
		var known []string
		for n := range u.blocks {
			known = append(known, n)
		}
		u.el.errs.Unknown(e.Arg.Span, "block", name, sorted(known))
		panic(spec.Stop{})
	}
	if u.el.badBlocks[b.V] {
		panic(spec.Stop{})
	}
	return b
}

// callBlock calls a block of the spec.
func (f *fn) callBlock(e *spec.Entry, sc *scope, i int) value.Value {
	b := f.u.findBlock(e, sc)
	if b.V.Kind.V == spec.KindModule {
		return f.callNew(e, sc, i)
	}
	if e.Module != nil {
		f.u.el.fail(e.Module.Span, "a function is no module and has no path")
	}
	ins := f.inputs(e, sc, "block "+b.Name.V, inputNames(b.V), nil)
	if b.V.Kind.V == spec.KindAutograd {
		v := f.u.apply(b, f.u.with(e, sc, b), ins, e.At)
		if f.checkpointed(e.Checkpoint, sc, v).Expr != v.Expr {
			f.u.el.fail(e.Checkpoint.At, "a block with kind: autograd cannot be checkpointed itself; call it in a block with kind: function, and checkpoint that block")
		}
		return v
	}
	return f.checkpointed(e.Checkpoint, sc, f.u.callFunction(b, f.u.with(e, sc, b), ins, e.At))
}

// callFunction elaborates a function in the context of this class, whose
// modules it may use, and calls it.
func (u *unit) callFunction(b *spec.Named[spec.Block], with map[string]any, ins []value.Value, at spec.Span) value.Value {
	el := u.el
	key := fmt.Sprintf("%p %s %s", b, keyOf(with), el.keyOfVals(ins))
	fe, ok := u.funcs[key]
	if ok && fe == nil { // its mistakes are known
		panic(spec.Stop{})
	}
	if !ok {
		el.enter(at)
		var f *fn
		if !spec.Try(func() { f, fe = u.function(b, with, ins, at) }) {
			el.depth--
			u.funcs[key] = nil
			panic(spec.Stop{})
		}
		el.depth--
		n := 0
		for _, m := range u.class.Methods {
			if strings.TrimRight(m.Name, "0123456789_") == strings.TrimRight(f.f.Name, "0123456789_") {
				n++
			}
		}
		if n > 0 {
			f.f.Name = fmt.Sprintf("%s_%d", f.f.Name, n+1)
		}
		u.class.Methods = append(u.class.Methods, f.f)
		u.funcs[key] = fe
	}
	el.bound(fe.fn, u.class, at)
	x := &program.Expr{Kind: program.CallFun, Func: fe.fn}
	for _, v := range ins {
		x.Args = append(x.Args, v.Expr)
	}
	return value.Value{Expr: x, Meta: value.Returned(left(fe.entered, ins, fe.rets))}
}

// function elaborates a function in the context of this class.
func (u *unit) function(b *spec.Named[spec.Block], with map[string]any, ins []value.Value, at spec.Span) (*fn, *elaboratedFunc) {
	sc := u.el.blockScope(b, u, with)
	what := u.what
	defer func() { u.what = what }()
	u.what = "block " + b.Name.V
	f := u.newFn(b.Name.V, program.Function, sc, inputNames(b.V), ins, at)
	u.what = what
	fe := &elaboratedFunc{fn: f.f, entered: f.entered}
	u.el.in(b, func() { fe.rets = f.body(b) })
	return f, fe
}

// sequential elaborates nn.Sequential: its children are called in a chain.
func (u *unit) sequential(e *spec.Entry, sc *scope, ins []value.Value) (*program.Class, []value.Value) {
	el := u.el
	if len(ins) != 1 {
		el.fail(e.At, "Sequential takes one input, not %d", len(ins))
	}
	el.enter(e.At)
	defer func() { el.depth-- }()
	n := &unit{el: el, class: &program.Class{Layer: nn.Sequential, Python: nn.Sequential.Python}, scope: sc, blocks: u.blocks, children: map[string]int{}, declared: map[string]*declared{}}
	f := n.newFn("forward", program.Module, sc, []string{"input"}, ins, e.At)
	n.class.Forward = f.f
	f.chain(e.Body, sc)
	for _, s := range f.f.Body {
		if s.Value.Checkpoint != nil && n.class.Name == "" { // a class of its own
			n.class.Name = el.className(techniques.CheckpointedSequential)
		}
	}
	f.cur = f.local("input")
	return n.class, f.finish(e.At)
}

// chain calls the modules of a Sequential one after the other.
func (f *fn) chain(items []*spec.Entry, sc *scope) {
	el := f.u.el
	for _, item := range items {
		h := item.Head.V
		if h != spec.HeadBlock && h != spec.HeadSeq && h != spec.HeadLayers && layers.Lookup(h) == nil {
			el.fail(item.At, "Sequential holds modules, and %q is not one; write a block, or layers: in place of Sequential", h)
		}
		if item.NoGrad != nil || item.EnableGrad != nil {
			el.fail(item.At, "Sequential calls its modules itself; give no_grad or enable_grad to the Sequential, or write layers: in its place")
		}
		if item.Unused != nil {
			el.fail(item.Unused.Span, "Sequential calls all of its modules")
		}
		if len(item.Name) > 0 || item.HasIn || item.Module != nil {
			el.fail(item.At, "the modules of Sequential have no names or inputs of their own")
		}
		f.u.expand(item, sc, func(sc *scope, _ int) {
			if h == spec.HeadLayers {
				f.chain(item.Body, sc)
				return
			}
			path := fmt.Sprint(len(f.u.class.Children))
			v := f.callModule(item, sc, path, []value.Value{f.local("input")}, nil, item.At)
			if v.Meta.Tensor == nil {
				el.fail(item.At, "%s gives %s; the next module of Sequential needs a tensor", item.Head.V, v.Meta.Describe())
			}
			f.emit(program.Stmt{Kind: program.Assign, Targets: []int{f.set("input", v.Meta)}, Value: v.Expr, Line: item.At.Line})
		})
	}
}

// arguments reads the arguments of a layer, those of its call in kwargs.
func (u *unit) arguments(e *spec.Entry, sc *scope, l *module.Layer, kwargs *spec.Value) *argReader {
	a := &argReader{el: u.el, env: sc, what: e.Head.V, at: e.Head.At, sigs: l.Sigs()}
	a.also, a.skip = l.InputNames(), l.Takes
	a.read(e.Arg)
	if kwargs != nil {
		a.read(kwargs)
	}
	return a
}

// layer makes a module of torch.nn.
func (u *unit) layer(e *spec.Entry, sc *scope, l *module.Layer, ins []value.Value, kwargs *spec.Value, at spec.Span) (class *program.Class, rets []value.Value) {
	el := u.el
	a := u.arguments(e, sc, l, kwargs)
	if n := len(ins); n < l.Required() || n > len(l.InputNames()) {
		el.fail(at, "%s takes %s (%s), but %s given", e.Head.V, spec.Plural(l.Required(), "input"), strings.Join(l.InputNames(), ", "), spec.Are(n))
	}
	a.require()
	el.shrunk.Shrink(el.path, a.vals)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *module.Mistake:
			if at == e.At {
				at = e.Head.At
			}
			if v := a.from[r.Arg]; v != nil {
				at = v.Span
				r.Msg += a.misplaced(a.find(r.Arg))
			}
			el.fail(at, "%s: %s", e.Head.V, r.Msg)
		case tensor.RankError:
			el.fail(e.Head.At, "%s: %v", e.Head.V, r)
		default:
			panic(r)
		}
	}()
	if e.InPlace != nil && !a.given["inplace"] {
		if l.Sigs()[0].Find("inplace") == nil {
			el.fail(e.InPlace.Span, "%s has no in-place form", e.Head.V)
		}
		a.vals["inplace"], a.given["inplace"] = el.evalBool(e.InPlace, sc, "inplace"), true
	}
	style := el.styleOf(el.path)
	env := el.env()
	if style != nil {
		env.Sharding, ins = el.divided(style, l, ins, e.Head.At)
	}
	class, rets = env.Build(l, a.vals, a.given, ins)
	if style != nil {
		rets = el.returned(style, rets, e.Head.At)
		class.Style = style
	} else {
		for _, v := range ins {
			el.plain(v, e.Head)
		}
	}
	el.beyond(e.Head.At)
	return class, rets
}

// checkWith reports whether a block has the params that an entry gives.
func (el *elaborator) checkWith(e *spec.Entry, name string, b *spec.Block) bool {
	if e.With == nil {
		return true
	}
	ok := true
	var names []string
	if b.Params != nil {
		for _, p := range b.Params.Pairs {
			names = append(names, p.Key.Str)
		}
	}
	for _, p := range e.With.Pairs {
		if !slices.Contains(names, p.Key.Str) {
			el.errs.Unknown(p.Key.Span, "param of block "+name, p.Key.Str, names)
			ok = false
		}
	}
	return ok
}
