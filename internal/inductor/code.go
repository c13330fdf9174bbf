package inductor

import (
	"regexp"
	"strings"

	"go.starlark.net/syntax"

	"github.com/memplan/memplan/internal/tensor"
)

// Line is a statement of a graph's code.
type Line struct {
	Line int // in the file
	// Del are the names that it deletes; else Code is what it does, and Expr what it
	// binds to Names or, without any, computes; Return says that it is the graph's results.
	Del    []string
	Names  []string
	Expr   syntax.Expr
	Return bool
}

// Input is an argument of a graph.
type Input struct {
	Name          string
	Size, Stride  []syntax.Expr // nil: a number
	DType         tensor.DType
	Typed, Tensor bool
	Line          int
}

// launched is the call of a kernel, which allocates nothing.
var launched = regexp.MustCompile(`^\w+(\[[^\]]*\])?(\.run)?\(.*stream=\w+\)$`)

// onlyOne is an assignment to a tuple of one name.
var onlyOne = regexp.MustCompile(`^(\w+), = `)

// idle are the beginnings of lines that do nothing to memory.
var idle = []string{
	"#", "with ", "args.clear()", "torch.cuda.set_device(", "torch._C._cuda_setDevice(", "run_intermediate_hooks(", "assert_alignment(", "start_graph(", "end_graph(", "pass",
}

// code parses the lines of the graph at hand.
func (r *reader) code() {
	for _, l := range r.lines {
		r.line = l.line
		text, _, _ := strings.Cut(l.text, "  # ")
		if r.quiet(text) {
			continue
		}
		for _, s := range strings.Split(text, "; ") {
			r.parse(s)
		}
	}
}

func (r *reader) quiet(text string) bool {
	if text == "" || launched.MatchString(text) || strings.Contains(text, "= get_raw_stream(") {
		return true
	}
	for _, p := range idle {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

func (r *reader) parse(text string) {
	l := Line{Line: r.line}
	if m := deleted.FindStringSubmatch(text); m != nil {
		l.Del = strings.Split(m[1], ", ")
		r.g.Code = append(r.g.Code, l)
		return
	}
	text = onlyOne.ReplaceAllString(text, "($1,) = ")
	f, err := (&syntax.FileOptions{}).Parse(r.file, text, 0)
	if err != nil || len(f.Stmts) != 1 {
		r.fail("%q is no statement that Inductor is known to write", text)
	}
	switch s := f.Stmts[0].(type) {
	case *syntax.ReturnStmt:
		l.Return, l.Expr = true, s.Result
	case *syntax.ExprStmt:
		l.Expr = s.X
	case *syntax.AssignStmt:
		l.Expr = s.RHS
		if !bound(s.LHS, &l.Names) || s.Op != syntax.EQ {
			r.fail("%q is no statement that Inductor is known to write", text)
		}
		if id, ok := s.RHS.(*syntax.Ident); ok && id.Name == "args" {
			for _, n := range l.Names {
				r.g.Inputs = append(r.g.Inputs, Input{Name: n, Line: r.line})
			}
			return
		}
	default:
		r.fail("%q is no statement that Inductor is known to write", text)
	}
	if c, ok := l.Expr.(*syntax.CallExpr); ok && Dotted(c.Fn) == "assert_size_stride" && len(c.Args) >= 3 {
		r.asserted(c)
	}
	r.g.Code = append(r.g.Code, l)
}

// asserted notes the sizes of an input.
func (r *reader) asserted(c *syntax.CallExpr) {
	name, ok := c.Args[0].(*syntax.Ident)
	if !ok {
		return
	}
	for i := range r.g.Inputs {
		if in := &r.g.Inputs[i]; in.Name == name.Name && !in.Tensor {
			in.Tensor, in.Size, in.Stride, in.Line = true, Items(c.Args[1]), Items(c.Args[2]), r.line
			if t, typed := r.inputs[in.Name]; typed {
				d, err := tensor.ParseDType(t)
				if err != nil {
					r.fail("%v", err)
				}
				in.DType, in.Typed = d, true
			}
			return
		}
	}
}

// bound lists the names on the left of an assignment.
func bound(x syntax.Expr, names *[]string) bool {
	switch x := x.(type) {
	case *syntax.Ident:
		*names = append(*names, x.Name)
		return true
	case *syntax.ParenExpr:
		return bound(x.X, names)
	case *syntax.TupleExpr:
		for _, e := range x.List {
			if !bound(e, names) {
				return false
			}
		}
		return true
	}
	return false
}

// Items are the items of a tuple or list.
func Items(x syntax.Expr) []syntax.Expr {
	switch x := x.(type) {
	case *syntax.ParenExpr:
		if _, tuple := x.X.(*syntax.TupleExpr); tuple {
			return Items(x.X)
		}
		return []syntax.Expr{x.X}
	case *syntax.TupleExpr:
		return x.List
	case *syntax.ListExpr:
		return x.List
	}
	return nil
}

// Dotted is a name with its dots; "" if x is none.
func Dotted(x syntax.Expr) string {
	switch x := x.(type) {
	case *syntax.Ident:
		return x.Name
	case *syntax.DotExpr:
		if of := Dotted(x.X); of != "" {
			return of + "." + x.Name.Name
		}
	}
	return ""
}
