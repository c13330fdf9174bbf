package compiled

import (
	"strconv"
	"strings"

	"go.starlark.net/syntax"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// value is what a name of a graph's code is bound to: a tensor, of which it owns a
// reference, a list, or a number or word.
type value struct {
	t    *op.Tensor
	list []value
	x    any // int64, float64, bool, string or nil
}

// run is a call of a graph.
type run struct {
	*Model
	g     *inductor.Graph
	line  int
	vars  map[string]value
	order []string // of the names, as they were bound first
}

// fail ends the play: the code does what is not understood, or does not fit the model.
func (r *run) fail(line int, format string, args ...any) {
	r.p.Fail("%s:%d: "+format, append([]any{r.File, line}, args...)...)
}

// call runs a graph. It takes over the arguments, and the caller owns the results.
func (r *run) call(args []value) []value {
	for i, in := range r.g.Inputs {
		r.bind(in.Name, args[i])
	}
	var results []value
	for i := range r.g.Code {
		l := &r.g.Code[i]
		r.line = l.Line
		r.p.Meter.Work(1)
		switch {
		case l.Del != nil:
			for _, n := range l.Del {
				r.drop(r.vars[n])
				delete(r.vars, n)
			}
		case l.Return:
			for _, x := range inductor.Items(l.Expr) {
				results = append(results, r.eval(x))
			}
		case l.Names == nil:
			r.drop(r.statement(i, l.Expr))
		case len(l.Names) == 1:
			v := r.statement(i, l.Expr)
			r.bind(l.Names[0], v)
		default:
			v := r.statement(i, l.Expr)
			if len(v.list) != len(l.Names) {
				r.fail(l.Line, "%d names for %d values", len(l.Names), len(v.list))
			}
			for k, n := range l.Names {
				r.bind(n, v.list[k])
			}
		}
	}
	for _, n := range r.order { // the locals of the frame
		r.drop(r.vars[n])
		delete(r.vars, n)
	}
	return results
}

func (r *run) bind(name string, v value) {
	old, again := r.vars[name]
	if !again {
		r.order = append(r.order, name)
	}
	r.vars[name] = v
	if again {
		r.drop(old)
	}
}

func (r *run) drop(v value) {
	if v.t != nil {
		r.p.Drop(v.t)
	}
	for _, x := range v.list {
		r.drop(x)
	}
}

func (r *run) hold(v value) value {
	if v.t != nil {
		r.p.Keep(v.t)
	}
	for _, x := range v.list {
		r.hold(x)
	}
	return v
}

// statement evaluates the expression of line i, which may call an operator.
func (r *run) statement(i int, x syntax.Expr) value {
	c, ok := x.(*syntax.CallExpr)
	if !ok {
		return r.eval(x)
	}
	name := inductor.Dotted(c.Fn)
	switch name {
	case "assert_size_stride", "assert_tensor_metadata":
		return value{}
	case "reinterpret_tensor", "empty_strided_cuda", "empty_strided_cpu", "empty_strided_cpu_pinned", "as_strided":
		return r.eval(x)
	}
	r.p.Label(name)
	return r.operator(i, name, c)
}

// eval evaluates an expression; the caller owns the value.
func (r *run) eval(x syntax.Expr) value {
	switch x := x.(type) {
	case *syntax.ParenExpr:
		return r.eval(x.X)
	case *syntax.Literal:
		return value{x: x.Value}
	case *syntax.Ident:
		switch x.Name {
		case "None":
			return value{}
		case "True", "False":
			return value{x: x.Name == "True"}
		}
		if v, ok := r.vars[x.Name]; ok {
			return r.hold(v)
		}
		return value{x: x.Name} // a function, inf
	case *syntax.TupleExpr, *syntax.ListExpr:
		out := value{list: []value{}}
		for _, e := range inductor.Items(x) {
			out.list = append(out.list, r.eval(e))
		}
		return out
	case *syntax.DotExpr:
		if name := inductor.Dotted(x); name != "" {
			return value{x: name}
		}
	case *syntax.UnaryExpr:
		v := r.eval(x.X)
		switch n := v.x.(type) {
		case int64:
			if x.Op == syntax.MINUS {
				return value{x: -n}
			}
		case float64:
			if x.Op == syntax.MINUS {
				return value{x: -n}
			}
		}
		return v
	case *syntax.BinaryExpr:
		return r.binary(x)
	case *syntax.IndexExpr:
		of, at := r.eval(x.X), r.eval(x.Y)
		defer r.drop(of)
		if i, ok := at.x.(int64); ok && i >= 0 && of.list != nil {
			if i < int64(len(of.list)) {
				return r.hold(of.list[i])
			}
			return value{} // a result that no row has, as it takes no memory of the device
		}
	case *syntax.CallExpr:
		return r.function(x)
	}
	r.fail(r.line, "an expression that Inductor is not known to write")
	return value{}
}

// binary is arithmetic with sizes.
func (r *run) binary(x *syntax.BinaryExpr) value {
	a, aok := r.eval(x.X).x.(int64)
	b, bok := r.eval(x.Y).x.(int64)
	if aok && bok {
		switch x.Op {
		case syntax.PLUS:
			return value{x: a + b}
		case syntax.MINUS:
			return value{x: a - b}
		case syntax.STAR:
			return value{x: a * b}
		case syntax.SLASHSLASH:
			if b > 0 && a >= 0 {
				return value{x: a / b}
			}
		case syntax.PERCENT:
			if b > 0 && a >= 0 {
				return value{x: a % b}
			}
		}
	}
	r.fail(r.line, "a size that is not understood")
	return value{}
}

// function is a call within an expression.
func (r *run) function(c *syntax.CallExpr) value {
	name := inductor.Dotted(c.Fn)
	args := make([]value, len(c.Args))
	for i, a := range c.Args {
		if k, ok := a.(*syntax.BinaryExpr); ok && k.Op == syntax.EQ {
			a = k.Y
		}
		args[i] = r.eval(a)
	}
	defer func() {
		for _, a := range args {
			r.drop(a)
		}
	}()
	ints := make([]int64, 0, len(args))
	for _, a := range args {
		if n, ok := a.x.(int64); ok {
			ints = append(ints, n)
		}
	}
	switch {
	case strings.HasPrefix(name, "empty_strided") && len(args) == 3:
		word, _ := args[2].x.(string)
		d, err := tensor.ParseDType(strings.TrimPrefix(word, "torch."))
		if err != nil {
			r.fail(r.line, "%v", err)
		}
		l := r.layout(args[0], args[1], 0)
		if name != "empty_strided_cuda" {
			return value{t: r.p.Elsewhere(l, d)}
		}
		r.p.Label("empty_strided")
		return value{t: r.p.New(l, d)}
	case (name == "reinterpret_tensor" || name == "as_strided") && len(args) >= 3 && args[0].t != nil:
		of := args[0].t
		at := of.Offset
		if len(ints) > 0 && name == "as_strided" {
			at = ints[0]
		} else if len(ints) > 0 {
			at += ints[0]
		}
		return value{t: r.p.Alias(of, r.layout(args[1], args[2], at), of.DType)}
	case (name == "max" || name == "min") && len(ints) == len(args) && len(ints) > 0:
		n := ints[0]
		for _, x := range ints {
			if (x > n) == (name == "max") {
				n = x
			}
		}
		return value{x: n}
	case name == "float" && len(args) == 1:
		word, _ := args[0].x.(string)
		f, _ := strconv.ParseFloat(word, 64)
		return value{x: f}
	case name == "torch.device" || name == "device":
		return value{x: name}
	}
	r.fail(r.line, "%s: a function that Inductor is not known to call here", name)
	return value{}
}

func (r *run) layout(size, stride value, offset int64) tensor.Layout {
	if len(size.list) != len(stride.list) {
		r.fail(r.line, "%d sizes and %d strides", len(size.list), len(stride.list))
	}
	return tensor.Layout{Size: tensor.D(r.numbers(size)...), Stride: tensor.D(r.numbers(stride)...), Offset: offset}
}

func (r *run) numbers(v value) []int64 {
	out := make([]int64, len(v.list))
	for i, x := range v.list {
		n, ok := x.x.(int64)
		if !ok || n < 0 {
			r.fail(r.line, "a size that is not a number")
		}
		out[i] = n
	}
	return out
}

// requires reports whether autograd wants the gradient of t.
func requires(t *op.Tensor) bool { return autograd.Of(t).Requires }
