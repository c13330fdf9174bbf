package compiled

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/syntax"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// compiledFunction is CompiledFunction of AOTAutograd.
var compiledFunction = &op.Op{Name: "CompiledFunction", Node: "CompiledFunctionBackward"}

// Model is a model that was compiled.
type Model struct {
	p      *python.Interp
	root   *python.Module
	File   string
	frames [][]*pair // what Dynamo compiled, in order; of each, its versions
	given  []*python.Cell
	called bool
}

// pair is a graph with that of its backward pass.
type pair struct {
	forward, backward *inductor.Graph // backward is nil of a graph of inference
}

// New is the model of a root, whose graphs are those of a log.
func New(p *python.Interp, root *python.Module, c *program.Compiled) *Model {
	m := &Model{p: p, root: root, File: c.File}
	at := map[int]int{}
	for i, g := range c.Graphs {
		if g.Backward() {
			continue
		}
		pr := &pair{forward: g, backward: inductor.BackwardOf(c.Graphs, g)}
		frame := g.Frame
		if frame < 0 {
			frame = -1 - i
		}
		k, ok := at[frame]
		if !ok {
			k = len(m.frames)
			at[frame] = k
			m.frames = append(m.frames, nil)
		}
		m.frames[k] = append(m.frames[k], pr)
	}
	return m
}

// Has reports whether there is a graph for calls in a grad mode.
func (m *Model) Has(grad bool) bool {
	for _, versions := range m.frames {
		for _, pr := range versions {
			if (pr.backward != nil) == grad {
				return true
			}
		}
	}
	return false
}

// Call calls the model. It takes over the arguments.
func (m *Model) Call(args []python.Value) python.Value {
	p := m.p
	outer := p.Push()
	p.Layer = m.root.Layer
	p.Env().Autocast = false
	inputs := flat(args, nil)
	taken := map[*python.Cell]bool{}
	var outs, before []*op.Tensor
	for _, versions := range m.frames {
		pr, sources := m.version(versions, inputs, taken)
		if pr == nil {
			continue
		}
		outs = m.apply(pr, sources)
		before = append(before, outs...)
		inputs = append(inputs, outs...)
	}
	if outs == nil {
		p.Fail("%s has no graph that Inductor compiled for a call without gradients; let the log contain an evaluation, too", m.File)
	}
	m.complete(taken)
	p.Pop(outer)
	v := m.result(outs)
	p.Drop(before[:len(before)-len(outs)]...)
	p.LetGoAll(args)
	return v
}

// flat lists the tensors of values.
func flat(vs []python.Value, out []*op.Tensor) []*op.Tensor {
	for _, v := range vs {
		if v.T != nil {
			out = append(out, v.T)
		} else if v.List != nil {
			out = flat(v.List.Items, out)
		}
	}
	return out
}

// result is what the model returns: the graph's results, as its forward groups them.
func (m *Model) result(outs []*op.Tensor) python.Value {
	want := 1
	body := m.root.Class.Forward.Body
	for i := range body {
		if s := &body[i]; s.Kind == program.Return && s.Value == nil {
			want = len(s.Values)
		}
	}
	if want == 1 && len(outs) == 1 {
		return python.Value{T: outs[0]}
	}
	if want != len(outs) {
		m.p.Fail("the last graph of %s returns %d tensors, the model of the spec %d", m.File, len(outs), want)
	}
	items := make([]python.Value, len(outs))
	for i, t := range outs {
		items[i].T = t
	}
	return python.Value{List: python.NewList(items)}
}

// source is what goes into an argument of a graph: a tensor, of a cell if it is one of
// the model, or a number.
type source struct {
	t    *op.Tensor
	cell *python.Cell
	n    int64
}

// version finds the graph that was compiled for a call like this, and what goes into it.
func (m *Model) version(versions []*pair, inputs []*op.Tensor, taken map[*python.Cell]bool) (*pair, []source) {
	why := mismatch{}
	any := false
	for i := len(versions) - 1; i >= 0; i-- {
		pr := versions[i]
		if (pr.backward != nil) != m.p.Env().GradMode {
			continue
		}
		any = true
		now := map[*python.Cell]bool{}
		for c := range taken {
			now[c] = true
		}
		sources, wrong := m.match(pr, inputs, now)
		if wrong.text == "" {
			for c := range now {
				taken[c] = true
			}
			return pr, sources
		}
		why = wrong
	}
	if any {
		m.p.Fail("%s:%d: %s", m.File, why.line, why.text)
	}
	return nil, nil
}

// mismatch says why a graph is not that of the model.
type mismatch struct {
	line int
	text string
}

// match finds what goes into each argument of a graph: gradients are returned of those
// that require it.
func (m *Model) match(pr *pair, inputs []*op.Tensor, taken map[*python.Cell]bool) ([]source, mismatch) {
	g := pr.forward
	var grads []syntax.Expr
	if pr.backward != nil {
		grads = returned(pr.backward)
		if len(grads) != len(g.Inputs) {
			return nil, mismatch{pr.backward.Line, "the graph of the backward pass returns another number of gradients than that of the forward pass has inputs"}
		}
	}
	cells := m.cells()
	symbols := map[string]int64{}
	out := make([]source, len(g.Inputs))
	used := make([]bool, len(inputs))
	for i, in := range g.Inputs {
		if !in.Tensor {
			continue // a number, which the sizes of tensors tell
		}
		derived := grads != nil && !isNone(grads[i])
		found := false
		for _, c := range cells {
			if c.T != nil && !taken[c] && (grads == nil || requires(c.T) == derived) && fits(&in, c.T, symbols) {
				out[i], taken[c], found = source{t: c.T, cell: c}, true, true
				break
			}
		}
		for k := len(inputs) - 1; k >= 0 && !found; k-- {
			if t := inputs[k]; !used[k] && (!derived || requires(t)) && fits(&in, t, symbols) {
				out[i], used[k], found = source{t: t}, true, true
			}
		}
		if !found {
			text := "the graph takes " + in.Name + " of " + describe(&in)
			for k, t := range inputs {
				if logged, ok := otherBatch(&in, t); ok && !used[k] {
					return nil, mismatch{in.Line, fmt.Sprintf("%s: the log is of %d samples at a time, and the job has %d. The code holds for its own batch size; "+
						"log that of %d, or let the batch be dynamic (torch._dynamo.mark_dynamic)", text, logged, t.Dim(0), t.Dim(0))}
				}
			}
			return nil, mismatch{in.Line, text + ", and the model of the spec has no parameter, buffer or input left that is so; is the log of this job, with this precision and release?"}
		}
	}
	for i, in := range g.Inputs {
		if !in.Tensor {
			n, ok := symbols[m.symbol(g, in.Name)]
			if !ok {
				return nil, mismatch{in.Line, "the graph takes the number " + in.Name + ", which no size of its inputs tells"}
			}
			out[i].n = n
		}
	}
	return out, mismatch{}
}

// symbol is the name under which a graph's sizes use a number that it takes: s0 = primals_1.
func (m *Model) symbol(g *inductor.Graph, name string) string {
	for _, l := range g.Code {
		if id, ok := l.Expr.(*syntax.Ident); ok && id.Name == name && len(l.Names) == 1 {
			return l.Names[0]
		}
	}
	return name
}

// fits reports whether t is as a graph says of an input; symbols in its sizes that are
// not known yet become those of t.
func fits(in *inductor.Input, t *op.Tensor, symbols map[string]int64) bool {
	if len(in.Size) != t.Rank() || in.Typed && in.DType != t.DType {
		return false
	}
	learnt := map[string]int64{}
	for i, x := range in.Size {
		if !agrees(x, t.Dim(i), symbols, learnt) {
			return false
		}
	}
	for i, x := range in.Stride {
		if t.Dim(i) > 1 && !agrees(x, t.Stride.At(i), symbols, learnt) {
			return false
		}
	}
	for s, n := range learnt {
		symbols[s] = n
	}
	return true
}

// otherBatch reports whether t is as a graph says of an input but for its first size, and
// which that is there.
func otherBatch(in *inductor.Input, t *op.Tensor) (int64, bool) {
	if len(in.Size) == 0 {
		return 0, false
	}
	x, ok := in.Size[0].(*syntax.Literal)
	n, isInt := int64(0), false
	if ok {
		n, isInt = x.Value.(int64)
	}
	if !isInt || t.Rank() != len(in.Size) || n == t.Dim(0) {
		return 0, false
	}
	other := *in
	other.Size, other.Stride = slices.Clone(in.Size), nil
	other.Size[0] = &syntax.Literal{Value: t.Dim(0)}
	return n, fits(&other, t, map[string]int64{})
}

// agrees reports whether a size is n; what is no number and no symbol is not looked at.
func agrees(x syntax.Expr, n int64, symbols, learnt map[string]int64) bool {
	switch x := x.(type) {
	case *syntax.Literal:
		return x.Value == n
	case *syntax.Ident:
		for _, known := range []map[string]int64{symbols, learnt} {
			if v, ok := known[x.Name]; ok {
				return v == n
			}
		}
		learnt[x.Name] = n
	}
	return true
}

func describe(in *inductor.Input) string {
	var out []string
	for _, x := range in.Size {
		switch x := x.(type) {
		case *syntax.Literal:
			out = append(out, x.Raw)
		case *syntax.Ident:
			out = append(out, x.Name)
		default:
			out = append(out, "?")
		}
	}
	text := "size (" + strings.Join(out, ", ") + ")"
	if in.Typed {
		text += " and type " + in.DType.String()
	}
	return text
}

// cells are the parameters and buffers of the model, each once, in the order in which
// forward uses them: so Dynamo makes them inputs of its graphs.
func (m *Model) cells() []*python.Cell {
	if m.given == nil {
		m.given = m.root.Used()
		add := func(c *python.Cell) {
			if !slices.Contains(m.given, c) {
				m.given = append(m.given, c)
			}
		}
		for _, c := range python.Parameters([]*python.Module{m.root}) {
			add(c)
		}
		m.root.EachBuffer(add)
	}
	return m.given
}

// complete fails if a parameter that is trained goes into no graph.
func (m *Model) complete(taken map[*python.Cell]bool) {
	if m.called || !m.p.Env().GradMode {
		return
	}
	m.called = true
	n, first := 0, ""
	for _, c := range m.cells() {
		if c.T != nil && requires(c.T) && !taken[c] {
			if n++; n == 1 {
				first = c.Decl.Name + " of size " + c.T.Size.String()
			}
		}
	}
	if n > 0 {
		m.p.Fail("%d parameters of the model go into no graph of %s, the first %s", n, m.File, first)
	}
}

// returned are the results of a graph.
func returned(g *inductor.Graph) []syntax.Expr {
	for _, l := range g.Code {
		if l.Return {
			return inductor.Items(l.Expr)
		}
	}
	return nil
}

func isNone(x syntax.Expr) bool {
	id, ok := x.(*syntax.Ident)
	return ok && id.Name == "None"
}

// apply is CompiledFunction.apply; without a backward graph, the call of the graph alone.
func (m *Model) apply(pr *pair, sources []source) []*op.Tensor {
	p := m.p
	var args []value
	var tensors []*op.Tensor
	for _, s := range sources {
		if s.t == nil {
			args = append(args, value{x: s.n})
			continue
		}
		args = append(args, value{t: p.Keep(s.t)})
		tensors = append(tensors, s.t)
	}
	var n *autograd.Node
	if pr.backward != nil {
		n = p.NewFunction(compiledFunction, tensors)
	}
	outer := p.Push()
	p.Env().GradMode = false
	r := &run{Model: m, g: pr.forward, vars: map[string]value{}}
	results := r.call(args)
	p.Pop(outer)
	kept := 0
	if pr.backward != nil {
		for _, in := range pr.backward.Inputs {
			if !strings.HasPrefix(in.Name, "tangents_") {
				kept++
			}
		}
	}
	if kept > len(results) {
		r.fail(pr.forward.Line, "the graph returns %d tensors, and that of its backward pass takes %d of them", len(results), kept)
	}
	at := len(results) - kept
	var outs []*op.Tensor
	for _, v := range results[:at] {
		if v.t == nil {
			r.fail(pr.forward.Line, "a result that is no tensor")
		}
		outs = append(outs, v.t)
	}
	if n == nil {
		return outs
	}
	f := &function{m: m, pr: pr, saved: results[at:], sources: sources}
	for _, v := range f.saved {
		if v.t != nil {
			p.CountSaved(v.t)
		}
	}
	n.Own(f)
	for _, t := range outs {
		p.Result(n, t)
	}
	return outs
}

// function is the context of a call: what the forward graph saved.
type function struct {
	m       *Model
	pr      *pair
	saved   []value
	sources []source
}

// Release implements autograd.Function.
func (f *function) Release() {
	for _, v := range f.saved {
		if v.t != nil {
			f.m.p.Drop(v.t)
		}
	}
	f.saved = nil
}

// Backward is CompiledFunction.backward: what was saved is the graph's alone, unless the
// autograd graph is retained; gradients that came in live to its end.
func (f *function) Backward(n *autograd.Node, b *op.Back) {
	g := f.pr.backward
	r := &run{Model: f.m, g: g, vars: map[string]value{}}
	var args []value
	numbers, tensors := []value{}, []value{}
	for _, v := range f.saved {
		if v.x != nil {
			numbers = append(numbers, v)
		} else {
			tensors = append(tensors, r.hold(v))
		}
	}
	args = append(numbers, tensors...)
	if !b.Retain {
		f.Release()
	}
	k := 0
	for i := len(args); i < len(g.Inputs); i++ {
		in := &g.Inputs[i]
		for k < len(b.OutM) && !b.OutM[k].DType.IsFloating() {
			k++
		}
		if k >= len(b.OutM) {
			r.fail(in.Line, "the graph takes the gradient %s, and the forward graph has no result for it", in.Name)
		}
		args = append(args, value{t: f.tangent(in, b.Grads[k], b.OutM[k])})
		k++
	}
	results := r.call(args)
	i := 0
	for k, v := range results {
		if k < len(f.sources) && f.sources[k].t != nil {
			if v.t != nil && b.Need(i) {
				b.Set(i, v.t)
				v.t = nil
			}
			i++
		}
		r.drop(v)
	}
}

// tangent is a gradient in the layout that the graph was compiled for
// (process_runtime_tangent); zeros if there is none. The caller owns it.
func (f *function) tangent(in *inductor.Input, g *op.Tensor, m op.Meta) *op.Tensor {
	p := f.m.p
	if g == nil {
		l := m.Layout
		l.Offset = 0
		return p.New(l, m.DType)
	}
	last := !m.Layout.IsContiguous() && m.Layout.IsChannelsLastContiguous()
	if last && g.IsChannelsLastContiguous() || !last && g.IsContiguous() {
		return p.Keep(g)
	}
	p.Label("contiguous")
	return p.New(tensor.InFormat(g.Size, last), g.DType)
}
