package module

import (
	"errors"
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Mistake is how a builder stops: a mistake of the spec, with the argument
// it is about if there is one.
type Mistake struct {
	Arg string
	Msg string
}

func (e *Mistake) Error() string { return e.Msg }

// Env is what modules are made in.
type Env struct {
	Shapes   *op.Shapes
	DType    tensor.DType  // of parameters
	Gathered *tensor.DType // in which FSDP gathers them; nil: in their own
	Notes    *[]note.Note  // of which modules that are made add some

	// Apart says that the arguments of each module are tensors of their own, as hooks of
	// all modules make them: one that is passed twice is not the same tensor twice.
	Apart bool

	Sharding Sharding // of the parameters of the module under way
}

// Sharding says which part of a module's parameters a rank has, where
// parallelize_module divides them.
type Sharding struct {
	Ranks int64 // 0: the module is not divided
	Table bool  // it is an embedding
	program.Style
}

// whole is the size of an argument that is inferred from a rank's part of the input.
func (s Sharding) whole(n int64) int64 {
	if at := s.Computes(s.Table); s.Ranks > 0 && at.Shard && at.Dim == -1 {
		return n * s.Ranks
	}
	return n
}

// part is the size of a rank's part of a parameter.
func (b *Builder) part(name string, size []int64) []int64 {
	s := b.Env.Sharding
	if s.Ranks == 0 {
		return size
	}
	dim, divided := s.Divides(name, s.Table)
	if !divided {
		return size
	}
	out := append([]int64(nil), size...)
	if out[dim]%s.Ranks != 0 {
		b.Fail("", "%s of shape %s is not divided by %d ranks without a rest; PyTorch pads it, which is not modelled", name, tensor.SizeString(size), s.Ranks)
	}
	out[dim] /= s.Ranks
	return out
}

// Computed is the type of a parameter where the model computes with it.
func (e *Env) Computed(d tensor.DType) tensor.DType {
	if e.Gathered != nil && d.IsFloating() {
		return *e.Gathered
	}
	return d
}

// Builder makes one module: its class and the body of its forward.
type Builder struct {
	Env   *Env
	Class *program.Class
	Func  *program.Func
	Args  map[string]any // bound values; nil where an inferred one was not given
	Given map[string]bool
	Ins   []value.Value
	slots map[string]int
	ret   []value.Value
}

// NewBuilder begins the forward of a class that stands in no table, with inputs of
// those names.
func NewBuilder(e *Env, class *program.Class, inputs ...string) *Builder {
	b := &Builder{Env: e, Class: class, Func: &program.Func{Name: "forward", Kind: program.Module, Params: len(inputs), Slots: inputs}, Args: map[string]any{}, slots: map[string]int{}}
	for i, name := range inputs {
		b.slots[name] = i
	}
	class.Forward = b.Func
	return b
}

// function begins another function of the module.
func (b *Builder) function(fn *program.Func) *Builder {
	return &Builder{Env: b.Env, Class: b.Class, slots: map[string]int{}, Func: fn}
}

// Fail stops at a mistake, of the argument of that name if there is one.
func (b *Builder) Fail(arg, format string, args ...any) {
	panic(&Mistake{arg, fmt.Sprintf(format, args...)})
}

// Arguments of the constructor (and of forward) by name.

func (b *Builder) Int(name string) int64     { n, _ := b.arg(name).(int64); return n }
func (b *Builder) Float(name string) float64 { f, _ := b.arg(name).(float64); return f }
func (b *Builder) Bool(name string) bool     { v, _ := b.arg(name).(bool); return v }
func (b *Builder) Str(name string) string    { s, _ := b.arg(name).(string); return s }
func (b *Builder) Ints(name string) []int64 {
	switch v := b.arg(name).(type) {
	case []int64:
		return v
	case int64:
		return []int64{v}
	}
	return nil
}

// Has reports whether the argument has a value other than None.
func (b *Builder) Has(name string) bool { return b.arg(name) != nil }

// Takes reports whether there is such an argument.
func (b *Builder) Takes(name string) bool {
	_, is := b.Args[name]
	return is
}

// arg is an argument; to ask for one that the signature does not have is a programming
// error.
func (b *Builder) arg(name string) any {
	v, ok := b.Args[name]
	if !ok {
		panic(fmt.Sprintf("module: %s has no argument %s", b.Class.Layer.Python, name))
	}
	return v
}

// Infer sets an argument from the input; if it was given, it must agree.
func (b *Builder) Infer(name string, n int64) int64 {
	v, ok := b.arg(name).(int64)
	n = b.Env.Sharding.whole(n)
	if ok && b.Given[name] {
		if v != n {
			b.Fail(name, "%s is %d, but the input has %d", name, v, n)
		}
		return v
	}
	b.Args[name] = n
	return n
}

// Positive checks that an argument is at least 1.
func (b *Builder) Positive(name string) int64 {
	n := b.Int(name)
	if n < 1 {
		b.Fail(name, "%s must be at least 1, not %d", name, n)
	}
	return n
}

// Spatial resolves an argument to n numbers, one number standing for all.
func (b *Builder) Spatial(name string, n int, least int64) []int64 {
	v := b.Ints(name)
	if len(v) == 1 {
		for len(v) < n {
			v = append(v, v[0])
		}
	}
	if len(v) != n {
		b.Fail(name, "%s must be one integer or %d, not %d of them", name, n, len(v))
	}
	for _, x := range v {
		if x < least {
			b.Fail(name, "%s must be at least %d, not %d", name, least, x)
		}
	}
	return v
}

// In is input i of forward; none beyond the given ones.
func (b *Builder) In(i int) value.Value {
	if i < len(b.Ins) {
		return b.Ins[i]
	}
	return value.Value{}
}

// Tensor is the shape of the first input, which must be a tensor of at least rank
// dimensions.
func (b *Builder) Tensor(rank int) *op.Tensor {
	t := b.Ins[0].Meta.Tensor
	if t == nil {
		b.Fail("", "the first input must be a tensor, not %s", b.Ins[0].Meta.Describe())
	}
	if t.Rank() < rank {
		b.Fail("", "the input needs at least %d dimensions, not shape %v", rank, t.Size)
	}
	return t
}

// Dtype is the type of the model's parameters.
func (b *Builder) DType() tensor.DType { return b.Env.DType }

// Param registers a parameter.
func (b *Builder) Param(name string, size ...int64) value.Value {
	b.Class.Params = append(b.Class.Params, program.Param{Name: name, Size: size, DType: b.DType()})
	return b.Own(name, b.Env.Computed(b.DType()), b.part(name, size))
}

// Buffer registers a buffer in the model's type.
func (b *Builder) Buffer(name string, size ...int64) value.Value {
	b.Class.Buffers = append(b.Class.Buffers, program.Param{Name: name, Size: size, DType: b.DType()})
	return b.Own(name, b.DType(), size)
}

// Counter registers an int64 scalar buffer.
func (b *Builder) Counter(name string) value.Value {
	b.Class.Buffers = append(b.Class.Buffers, program.Param{Name: name, DType: tensor.Int64, Fixed: true})
	return b.Own(name, tensor.Int64, nil)
}

// Own is a parameter or buffer of the module, or of one in it.
func (b *Builder) Own(name string, d tensor.DType, size []int64) value.Value {
	if _, err := tensor.MulBytes(append(append([]int64(nil), size...), d.Size())...); err != nil {
		b.Fail("", "parameter %s of shape %s: %v", name, tensor.SizeString(size), err)
	}
	return value.Value{Expr: &program.Expr{Kind: program.Attr, Path: name}, Meta: value.Tensor(&op.Tensor{Layout: b.Env.Shapes.E.Laid(tensor.D(size...)), DType: d})}
}

// Do calls an operator with one result.
func (b *Builder) Do(row *op.Op, args any, in ...value.Value) value.Value {
	v := b.Call(row, args, in...)
	if v.Meta.Tuple != nil {
		b.Fail("", "%s has several results", row.Name)
	}
	return v
}

// Call calls an operator; several results are a tuple.
func (b *Builder) Call(row *op.Op, args any, in ...value.Value) value.Value {
	e := &program.Expr{Kind: program.CallOp, Row: row, OpArgs: args}
	ts := make([]*op.Tensor, len(in))
	for i, v := range in {
		if v.Absent() {
			e.Inputs = append(e.Inputs, -1)
			continue
		}
		e.Inputs = append(e.Inputs, len(e.Args))
		e.Args = append(e.Args, v.Expr)
		ts[i] = v.Meta.Tensor
	}
	outs, err := b.Env.Shapes.Infer(row, args, ts...)
	if err != nil {
		b.Fail(ArgOf(err), "%v", err)
	}
	return value.Value{Expr: e, Meta: value.Results(row, outs)}
}

// Let binds a local variable and returns it.
func (b *Builder) Let(name string, v value.Value) value.Value {
	slot, ok := b.slots[name]
	if !ok {
		slot = len(b.Func.Slots)
		b.Func.Slots = append(b.Func.Slots, name)
		b.slots[name] = slot
	}
	b.Emit(program.Stmt{Kind: program.Assign, Targets: []int{slot}, Value: v.Expr})
	return value.Value{Expr: &program.Expr{Kind: program.Local, Slot: slot}, Meta: v.Meta}
}

// Declare makes local variables, None at first, that die after those made before them:
// Python counts them in the order of their first appearance in the text.
func (b *Builder) Declare(names ...string) {
	for _, n := range names {
		if _, ok := b.slots[n]; !ok {
			b.slots[n] = len(b.Func.Slots)
			b.Func.Slots = append(b.Func.Slots, n)
		}
	}
}

// LetAll binds the items of a tuple to local variables.
func (b *Builder) LetAll(names []string, v value.Value) []value.Value {
	st := program.Stmt{Kind: program.Assign, Unpack: true, Value: v.Expr}
	out := make([]value.Value, len(names))
	for i, n := range names {
		slot, ok := b.slots[n]
		if !ok {
			slot = len(b.Func.Slots)
			b.Func.Slots = append(b.Func.Slots, n)
			b.slots[n] = slot
		}
		st.Targets = append(st.Targets, slot)
		out[i] = value.Value{Expr: &program.Expr{Kind: program.Local, Slot: slot}, Meta: v.Meta.Tuple[i]}
	}
	b.Emit(st)
	return out
}

// Emit adds a statement.
func (b *Builder) Emit(st program.Stmt) { b.Func.Body = append(b.Func.Body, st) }

// InEval makes the last n statements ones that run in eval mode only.
func (b *Builder) InEval(n int) {
	for i := len(b.Func.Body) - n; i < len(b.Func.Body); i++ {
		b.Func.Body[i].InEval = true
	}
}

// Fast makes the last statement one that only a fused path runs.
func (b *Builder) Fast() { b.Func.Body[len(b.Func.Body)-1].Fast = true }

// Run calls an operator for its effect.
func (b *Builder) Run(row *op.Op, args any, in ...value.Value) {
	v := b.Call(row, args, in...)
	b.Emit(program.Stmt{Kind: program.Expression, Value: v.Expr})
}

// Pick takes an item of a tuple result.
func (b *Builder) Pick(v value.Value, i int) value.Value {
	return value.Value{Expr: &program.Expr{Kind: program.Pick, Index: i, Args: []*program.Expr{v.Expr}}, Meta: v.Meta.Tuple[i]}
}

// Child registers a submodule and returns its index.
func (b *Builder) Child(name string, l *Layer, args map[string]any, ins ...value.Value) (int, []value.Value) {
	class, rets := b.Env.Build(l, args, nil, ins)
	b.Class.Children = append(b.Class.Children, program.Child{Path: name, Class: class})
	return len(b.Class.Children) - 1, rets
}

// CallChild calls a submodule that child registered, on inputs like those it
// was registered with.
func (b *Builder) CallChild(i int, rets []value.Value, ins ...value.Value) value.Value {
	e := &program.Expr{Kind: program.CallMod, Child: i}
	for _, v := range ins {
		if !v.Absent() {
			e.Args = append(e.Args, v.Expr)
		}
	}
	return value.Value{Expr: e, Meta: value.Returned(rets)}
}

// Inline builds a function of the library (such as
// F.multi_head_attention_forward) that body composes, and calls it. Its
// parameters are the given values, in order; it owns its arguments.
func (b *Builder) Inline(name string, params []string, args []value.Value, body func(f *Builder, in []value.Value) []value.Value) value.Value {
	f := &Builder{Env: b.Env, Class: b.Class, Args: b.Args, Given: b.Given, slots: map[string]int{}}
	f.Func = &program.Func{Name: name, Kind: program.Function}
	call := &program.Expr{Kind: program.CallFun, Func: f.Func}
	in := make([]value.Value, len(params))
	for i, p := range params {
		if args[i].Absent() {
			continue
		}
		f.slots[p] = len(f.Func.Slots)
		in[i] = value.Value{Expr: &program.Expr{Kind: program.Local, Slot: len(f.Func.Slots)}, Meta: args[i].Meta}
		f.Func.Slots = append(f.Func.Slots, p)
		call.Args = append(call.Args, args[i].Expr)
	}
	f.Func.Params = len(f.Func.Slots)
	for i, p := range params { // None at first, but before the other locals
		if args[i].Absent() {
			f.slots[p] = len(f.Func.Slots)
			f.Func.Slots = append(f.Func.Slots, p)
		}
	}
	rets := body(f, in)
	f.Finish(rets...)
	return value.Value{Expr: call, Meta: value.Returned(rets)}
}

// Finish ends the body with its return.
func (b *Builder) Finish(rets ...value.Value) {
	st := program.Stmt{Kind: program.Return}
	if len(rets) == 1 {
		st.Value = rets[0].Expr
	} else {
		for _, r := range rets {
			st.Values = append(st.Values, r.Expr)
		}
	}
	b.Emit(st)
	b.ret = rets
}

// Build makes a module of torch.nn for the given inputs. args holds checked values
// by parameter name, given says which of them the spec gave (nil: all).
func (e *Env) Build(l *Layer, args map[string]any, given map[string]bool, ins []value.Value) (*program.Class, []value.Value) {
	if given == nil {
		given = map[string]bool{}
		for k := range args {
			given[k] = true
		}
	}
	b := e.begin(l, args, given)
	for i, v := range ins {
		if v.Absent() {
			b.Ins = append(b.Ins, value.Value{})
			continue
		}
		name := strings.TrimSuffix(l.inputs[min(i, len(l.inputs)-1)], "?")
		b.slots[name] = len(b.Func.Slots)
		in := value.Value{Expr: &program.Expr{Kind: program.Local, Slot: len(b.Func.Slots)}, Meta: v.Meta}
		for j := range i { // the same object passed twice: Python's "is" holds inside
			if v.Expr != nil && !e.Apart && v.Same(ins[j]) {
				in.Expr, b.Func.Merged = b.Ins[j].Expr, true
				break
			}
		}
		b.Ins = append(b.Ins, in)
		b.Func.Slots = append(b.Func.Slots, name)
	}
	b.Func.Params = len(b.Func.Slots)
	l.Build(b)
	if b.ret == nil {
		panic("module: layer " + l.Name() + " returns nothing")
	}
	if b.Class.Python == "" {
		b.Class.Python = constructor(l.sigs[0], b.Args, given)
	}
	for _, p := range l.sigs[1].Params {
		if given[p.Name] {
			b.Class.ForwardGiven = append(b.Class.ForwardGiven, program.KwArg{Name: p.Name, Value: b.Args[p.Name]})
		}
	}
	return b.Class, b.ret
}

// begin makes the builder of a layer with its arguments.
func (e *Env) begin(l *Layer, args map[string]any, given map[string]bool) *Builder {
	b := &Builder{
		Env: e, Class: &program.Class{Layer: &l.Is}, Func: &program.Func{Name: "forward", Kind: program.Module},
		Args: map[string]any{}, Given: given, slots: map[string]int{},
	}
	b.Class.Forward = b.Func
	for _, sig := range l.sigs {
		for _, p := range sig.Params {
			b.Args[p.Name] = nil
			if v, ok := args[p.Name]; ok {
				b.Args[p.Name] = v
			} else if !p.Infer {
				b.Args[p.Name] = DefaultValue(&p)
			}
		}
	}
	for name := range args {
		b.arg(name)
	}
	return b
}

// DefaultValue is a parameter's default in the type that Check returns.
func DefaultValue(p *op.Param) any {
	if p.Default == nil {
		return nil
	}
	v, err := p.Check(p.Default)
	if err != nil {
		panic("module: default of " + p.Name + ": " + err.Error())
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

// ArgOf is the argument that an error of shapes is about, "" if none is known.
func ArgOf(err error) string {
	var e *op.ShapeError
	if errors.As(err, &e) {
		return e.Arg
	}
	return ""
}
