package graph

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Layer is one module of torch.nn.
type Layer struct {
	// Sig is the constructor. Parameters marked "infer" follow from the input
	// and are checked if given.
	Sig string
	// Forward lists further arguments of forward that are no tensors, as a
	// signature "forward(need_weights: bool = True)".
	Forward string
	// Inputs names the tensors that forward takes; "?" marks optional ones, and
	// those after "*" are passed by keyword. The default is "input".
	Inputs string
	// Tuples says that inputs may be lists of tensors.
	Tuples bool
	// Is says what other packages must know of it; its name is that of Sig.
	Is nn.Layer
	// Build makes parameters and the body of forward.
	Build func(b *builder)

	name    string
	sig     *op.Sig
	forward *op.Sig
	inputs  []string
	keyword int // the first input that is passed by keyword
}

var layers = map[string]*Layer{}

// layer adds a row to the table and returns it; a signature that does not parse is a
// programming error.
func layer(l Layer) *Layer {
	p := &l
	var err error
	if p.sig, err = op.ParseSig(l.Sig); err != nil {
		panic("graph: " + err.Error())
	}
	p.forward = &op.Sig{}
	if l.Forward != "" {
		if p.forward, err = op.ParseSig(l.Forward); err != nil {
			panic("graph: " + err.Error())
		}
	}
	p.inputs = []string{"input"}
	if l.Inputs != "" {
		p.inputs = strings.Fields(l.Inputs)
	}
	if p.keyword = slices.Index(p.inputs, "*"); p.keyword >= 0 {
		p.inputs = slices.Delete(p.inputs, p.keyword, p.keyword+1)
	} else {
		p.keyword = len(p.inputs)
	}
	p.name, p.Is.Python = p.sig.Key, p.sig.Python
	if layers[p.name] != nil {
		panic("graph: layer " + p.name + " is defined twice")
	}
	layers[p.name] = p
	return p
}

// LayerNames lists the layers that a spec may use, sorted.
func LayerNames() []string {
	names := make([]string, 0, len(layers))
	for n := range layers {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// LookupLayer returns the layer of that name, or nil.
func LookupLayer(name string) *Layer { return layers[name] }

// required counts the inputs that must be given.
func (l *Layer) required() int {
	n := 0
	for _, i := range l.inputs {
		if !strings.HasSuffix(i, "?") {
			n++
		}
	}
	return n
}

// buildError is how a builder stops: a mistake of the spec, with the argument
// it is about if there is one.
type buildError struct {
	arg string
	msg string
}

func (e *buildError) Error() string { return e.msg }

// Env is what modules are made in.
type Env struct {
	Shapes   *op.Shapes
	DType    tensor.DType  // of parameters
	Gathered *tensor.DType // in which FSDP gathers them; nil: in their own
	Notes    *[]note.Note  // of which modules that are made add some
}

// Computed is the type of a parameter where the model computes with it.
func (e *Env) Computed(d tensor.DType) tensor.DType {
	if e.Gathered != nil && d.IsFloating() {
		return *e.Gathered
	}
	return d
}

// builder makes one module: its class and the body of its forward.
type builder struct {
	env   *Env
	layer *Layer
	class *program.Class
	fn    *program.Func
	args  map[string]any // bound values; nil where an inferred one was not given
	given map[string]bool
	ins   []val
	slots map[string]int
	ret   []val
}

// newBuilder begins the forward of a class that stands in no table, with inputs of
// those names.
func newBuilder(e *Env, class *program.Class, inputs ...string) *builder {
	b := &builder{env: e, class: class, fn: &program.Func{Name: "forward", Kind: program.Module, Params: len(inputs), Slots: inputs}, args: map[string]any{}, slots: map[string]int{}}
	for i, name := range inputs {
		b.slots[name] = i
	}
	class.Forward = b.fn
	return b
}

// function begins another function of the module.
func (b *builder) function(fn *program.Func) *builder {
	return &builder{env: b.env, class: b.class, slots: map[string]int{}, fn: fn}
}

func (b *builder) fail(arg, format string, args ...any) {
	panic(&buildError{arg, fmt.Sprintf(format, args...)})
}

// Arguments of the constructor (and of forward) by name.

func (b *builder) int(name string) int64     { n, _ := b.args[name].(int64); return n }
func (b *builder) float(name string) float64 { f, _ := b.args[name].(float64); return f }
func (b *builder) bool(name string) bool     { v, _ := b.args[name].(bool); return v }
func (b *builder) str(name string) string    { s, _ := b.args[name].(string); return s }
func (b *builder) ints(name string) []int64 {
	switch v := b.args[name].(type) {
	case []int64:
		return v
	case int64:
		return []int64{v}
	}
	return nil
}

// has reports whether the argument has a value other than None.
func (b *builder) has(name string) bool { return b.args[name] != nil }

// infer sets an argument from the input; if it was given, it must agree.
func (b *builder) infer(name string, n int64) int64 {
	if v, ok := b.args[name].(int64); ok && b.given[name] {
		if v != n {
			b.fail(name, "%s is %d, but the input has %d", name, v, n)
		}
		return v
	}
	b.args[name] = n
	return n
}

// positive checks that an argument is at least 1.
func (b *builder) positive(name string) int64 {
	n := b.int(name)
	if n < 1 {
		b.fail(name, "%s must be at least 1, not %d", name, n)
	}
	return n
}

// spatial resolves an argument to n numbers, one number standing for all.
func (b *builder) spatial(name string, n int, least int64) []int64 {
	v := b.ints(name)
	if len(v) == 1 {
		for len(v) < n {
			v = append(v, v[0])
		}
	}
	if len(v) != n {
		b.fail(name, "%s must be one integer or %d, not %d of them", name, n, len(v))
	}
	for _, x := range v {
		if x < least {
			b.fail(name, "%s must be at least %d, not %d", name, least, x)
		}
	}
	return v
}

// in is input i of forward; none beyond the given ones.
func (b *builder) in(i int) val {
	if i < len(b.ins) {
		return b.ins[i]
	}
	return val{}
}

// x is the shape of the first input, which must be a tensor of at least rank
// dimensions.
func (b *builder) x(rank int) *op.Tensor {
	t := b.ins[0].m.t
	if t == nil {
		b.fail("", "the first input must be a tensor, not %s", b.ins[0].m.describe())
	}
	if t.Rank() < rank {
		b.fail("", "the input needs at least %d dimensions, not shape %v", rank, t.Size)
	}
	return t
}

// dtype is the type of the model's parameters.
func (b *builder) dtype() tensor.DType { return b.env.DType }

// param registers a parameter.
func (b *builder) param(name string, size ...int64) val {
	b.class.Params = append(b.class.Params, program.Param{Name: name, Size: size, DType: b.dtype()})
	return b.own(name, b.env.Computed(b.dtype()), size)
}

// buffer registers a buffer in the model's type.
func (b *builder) buffer(name string, size ...int64) val {
	b.class.Buffers = append(b.class.Buffers, program.Param{Name: name, Size: size, DType: b.dtype()})
	return b.own(name, b.dtype(), size)
}

// counter registers an int64 scalar buffer.
func (b *builder) counter(name string) val {
	b.class.Buffers = append(b.class.Buffers, program.Param{Name: name, DType: tensor.Int64, Fixed: true})
	return b.own(name, tensor.Int64, nil)
}

func (b *builder) own(name string, d tensor.DType, size []int64) val {
	if _, err := tensor.MulBytes(append(append([]int64(nil), size...), d.Size())...); err != nil {
		b.fail("", "parameter %s of shape %s: %v", name, tensor.SizeString(size), err)
	}
	return val{&program.Expr{Kind: program.Attr, Path: name}, tensorMeta(&op.Tensor{Layout: tensor.Contiguous(tensor.D(size...)), DType: d})}
}

// do calls an operator with one result.
func (b *builder) do(row *op.Op, args any, in ...val) val {
	v := b.call(row, args, in...)
	if v.m.tuple != nil {
		b.fail("", "%s has several results", row.Name)
	}
	return v
}

// call calls an operator; several results are a tuple.
func (b *builder) call(row *op.Op, args any, in ...val) val {
	e := &program.Expr{Kind: program.CallOp, Row: row, OpArgs: args}
	ts := make([]*op.Tensor, len(in))
	for i, v := range in {
		if v.isNone() {
			e.Inputs = append(e.Inputs, -1)
			continue
		}
		e.Inputs = append(e.Inputs, len(e.Args))
		e.Args = append(e.Args, v.e)
		ts[i] = v.m.t
	}
	outs, err := b.env.Shapes.Infer(row, args, ts...)
	if err != nil {
		b.fail(argOf(err), "%v", err)
	}
	return val{e, results(row, outs)}
}

// argOf is the argument that an error of shapes is about, "" if none is known.
func argOf(err error) string {
	var e *op.ShapeError
	if errors.As(err, &e) {
		return e.Arg
	}
	return ""
}

func results(row *op.Op, outs []*op.Tensor) meta {
	if len(outs) == 1 && !row.List {
		return tensorMeta(outs[0])
	}
	m := meta{tuple: []meta{}}
	for _, o := range outs {
		m.tuple = append(m.tuple, tensorMeta(o))
	}
	return m
}

// let binds a local variable and returns it.
func (b *builder) let(name string, v val) val {
	slot, ok := b.slots[name]
	if !ok {
		slot = len(b.fn.Slots)
		b.fn.Slots = append(b.fn.Slots, name)
		b.slots[name] = slot
	}
	b.fn.Body = append(b.fn.Body, program.Stmt{Kind: program.Assign, Targets: []int{slot}, Value: v.e})
	return val{&program.Expr{Kind: program.Local, Slot: slot}, v.m}
}

// letAll binds the items of a tuple to local variables.
func (b *builder) letAll(names []string, v val) []val {
	st := program.Stmt{Kind: program.Assign, Unpack: true, Value: v.e}
	out := make([]val, len(names))
	for i, n := range names {
		slot, ok := b.slots[n]
		if !ok {
			slot = len(b.fn.Slots)
			b.fn.Slots = append(b.fn.Slots, n)
			b.slots[n] = slot
		}
		st.Targets = append(st.Targets, slot)
		out[i] = val{&program.Expr{Kind: program.Local, Slot: slot}, v.m.tuple[i]}
	}
	b.fn.Body = append(b.fn.Body, st)
	return out
}

// run calls an operator for its effect.
func (b *builder) run(row *op.Op, args any, in ...val) {
	v := b.call(row, args, in...)
	b.fn.Body = append(b.fn.Body, program.Stmt{Kind: program.Expression, Value: v.e})
}

// pick takes an item of a tuple result.
func (b *builder) pick(v val, i int) val {
	return val{&program.Expr{Kind: program.Pick, Index: i, Args: []*program.Expr{v.e}}, v.m.tuple[i]}
}

// child registers a submodule and returns its index.
func (b *builder) child(name string, l *Layer, args map[string]any, ins ...val) (int, []val) {
	class, rets := b.env.Build(l, args, nil, ins)
	b.class.Children = append(b.class.Children, program.Child{Path: name, Class: class})
	return len(b.class.Children) - 1, rets
}

// callChild calls a submodule that child registered, on inputs like those it
// was registered with.
func (b *builder) callChild(i int, rets []val, ins ...val) val {
	e := &program.Expr{Kind: program.CallMod, Child: i}
	for _, v := range ins {
		if !v.isNone() {
			e.Args = append(e.Args, v.e)
		}
	}
	return val{e, metaOf(rets)}
}

// inline builds a function of the library (such as
// F.multi_head_attention_forward) that body composes, and calls it. Its
// parameters are the given values, in order; it owns its arguments.
func (b *builder) inline(name string, params []string, args []val, body func(f *builder, in []val) []val) val {
	f := &builder{env: b.env, layer: b.layer, class: b.class, args: b.args, given: b.given, slots: map[string]int{}}
	f.fn = &program.Func{Name: name, Kind: program.Function}
	call := &program.Expr{Kind: program.CallFun, Func: f.fn}
	in := make([]val, len(params))
	for i, p := range params {
		if args[i].isNone() {
			continue
		}
		f.slots[p] = len(f.fn.Slots)
		in[i] = val{&program.Expr{Kind: program.Local, Slot: len(f.fn.Slots)}, args[i].m}
		f.fn.Slots = append(f.fn.Slots, p)
		call.Args = append(call.Args, args[i].e)
	}
	f.fn.Params = len(f.fn.Slots)
	for i, p := range params { // None at first, but before the other locals
		if args[i].isNone() {
			f.slots[p] = len(f.fn.Slots)
			f.fn.Slots = append(f.fn.Slots, p)
		}
	}
	rets := body(f, in)
	f.finish(rets)
	return val{call, metaOf(rets)}
}

// finish ends the body with its return.
func (b *builder) finish(rets []val) {
	st := program.Stmt{Kind: program.Return}
	if len(rets) == 1 {
		st.Value = rets[0].e
	} else {
		for _, r := range rets {
			st.Values = append(st.Values, r.e)
		}
	}
	b.fn.Body = append(b.fn.Body, st)
	b.ret = rets
}

// metaOf describes what a call with these results returns.
func metaOf(rets []val) meta {
	if len(rets) == 1 {
		return rets[0].m
	}
	m := meta{tuple: []meta{}}
	for _, r := range rets {
		m.tuple = append(m.tuple, r.m)
	}
	return m
}

// Build makes a module of torch.nn for the given inputs. args holds checked values
// by parameter name, given says which of them the spec gave (nil: all).
func (e *Env) Build(l *Layer, args map[string]any, given map[string]bool, ins []val) (*program.Class, []val) {
	if given == nil {
		given = map[string]bool{}
		for k := range args {
			given[k] = true
		}
	}
	b := &builder{
		env: e, layer: l, class: &program.Class{Layer: &l.Is}, fn: &program.Func{Name: "forward", Kind: program.Module},
		args: map[string]any{}, given: given, slots: map[string]int{},
	}
	b.class.Forward = b.fn
	for _, sig := range []*op.Sig{l.sig, l.forward} {
		for _, p := range sig.Params {
			if v, ok := args[p.Name]; ok {
				b.args[p.Name] = v
			} else if !p.Infer {
				b.args[p.Name] = defaultValue(&p)
			}
		}
	}
	for i, v := range ins {
		if v.isNone() {
			b.ins = append(b.ins, val{})
			continue
		}
		name := strings.TrimSuffix(l.inputs[min(i, len(l.inputs)-1)], "?")
		b.slots[name] = len(b.fn.Slots)
		in := val{&program.Expr{Kind: program.Local, Slot: len(b.fn.Slots)}, v.m}
		for j := range i { // the same object passed twice: Python's "is" holds inside
			if v.e != nil && v.same(ins[j]) {
				in.e, b.fn.Merged = b.ins[j].e, true
				break
			}
		}
		b.ins = append(b.ins, in)
		b.fn.Slots = append(b.fn.Slots, name)
	}
	b.fn.Params = len(b.fn.Slots)
	l.Build(b)
	if b.ret == nil {
		panic("graph: layer " + l.name + " returns nothing")
	}
	if b.class.Python == "" {
		b.class.Python = constructor(l.sig, b.args, given)
	}
	for _, p := range l.forward.Params {
		if given[p.Name] {
			b.class.ForwardGiven = append(b.class.ForwardGiven, program.KwArg{Name: p.Name, Value: b.args[p.Name]})
		}
	}
	return b.class, b.ret
}

// defaultValue is a parameter's default in the type that Check returns.
func defaultValue(p *op.Param) any {
	if p.Default == nil {
		return nil
	}
	v, err := p.Check(p.Default)
	if err != nil {
		panic("graph: default of " + p.Name + ": " + err.Error())
	}
	return v
}

// constructor prints the call that makes a module: leading required and
// inferred arguments by position, the others that were given by name.
func constructor(sig *op.Sig, args map[string]any, given map[string]bool) string {
	var parts []string
	positional := true
	for _, p := range sig.Params {
		v := args[p.Name]
		switch {
		case (p.Required || p.Infer) && positional && v != nil:
			parts = append(parts, program.Literal(v))
		case given[p.Name] || (p.Infer && v != nil):
			positional = false
			parts = append(parts, p.Name+"="+program.Literal(v))
		default:
			positional = false
		}
	}
	return sig.Python + "(" + strings.Join(parts, ", ") + ")"
}
