package program

import (
	"fmt"
	"strings"
)

// Describe names a class in messages.
func (c *Class) Describe() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Python
}

// ParamNames lists the names of c's own parameters.
func (c *Class) ParamNames() []string {
	out := make([]string, len(c.Params))
	for i, p := range c.Params {
		out[i] = p.Name
	}
	return out
}

// Dump prints a class as text: its parameters, children and functions; with
// deep, the classes of its children too, each once.
func (c *Class) Dump(deep bool) string {
	var b strings.Builder
	seen := map[*Class]bool{}
	var walk func(c *Class)
	walk = func(c *Class) {
		if seen[c] {
			return
		}
		seen[c] = true
		c.dump(&b)
		for _, ch := range c.Children {
			if deep && ch.Class != nil {
				walk(ch.Class)
			}
		}
	}
	walk(c)
	return b.String()
}

func (c *Class) dump(b *strings.Builder) {
	fmt.Fprintf(b, "class %s\n", c.Describe())
	for _, p := range c.Params {
		fmt.Fprintf(b, "  parameter %s %v %v\n", p.Name, p.Size, p.DType)
	}
	for _, p := range c.Buffers {
		fmt.Fprintf(b, "  buffer %s %v %v\n", p.Name, p.Size, p.DType)
	}
	for _, ch := range c.Children {
		if ch.Class == nil {
			fmt.Fprintf(b, "  %s: ?\n", ch.Path)
			continue
		}
		fmt.Fprintf(b, "  %s: %s", ch.Path, ch.Class.Describe())
		for _, t := range ch.Ties {
			fmt.Fprintf(b, " %s=%s", t.Param, t.Source)
		}
		b.WriteByte('\n')
	}
	for _, m := range c.Methods {
		m.dump(b, c)
	}
	if c.Forward != nil {
		c.Forward.dump(b, c)
	}
	for _, f := range c.Applied {
		f.Autograd.Class.dump(b)
		f.Autograd.Backward.dump(b, f.Autograd.Class)
	}
}

// Dump prints a function as text; c is the class that its modules belong to.
func (f *Func) Dump(c *Class) string {
	var b strings.Builder
	f.dump(&b, c)
	return b.String()
}

func (f *Func) dump(b *strings.Builder, c *Class) {
	fmt.Fprintf(b, "  def %s(%s)\n", f.Name, strings.Join(f.Slots[:f.Params], ", "))
	if f.NoAutocast {
		b.WriteString("    without autocast\n")
	}
	for i := range f.Body {
		fmt.Fprintf(b, "    %s\n", f.stmt(&f.Body[i], c))
	}
}

func (f *Func) targets(s *Stmt) string {
	names := make([]string, len(s.Targets))
	for i, t := range s.Targets {
		names[i] = f.Slots[t]
	}
	return strings.Join(s.Nested(names), ", ")
}

// Nested puts the names of the targets into parentheses where an inner tuple is
// unpacked.
func (s *Stmt) Nested(names []string) []string {
	if s.Nest == nil {
		return names
	}
	var out []string
	for _, n := range s.Nest {
		if n == 0 {
			out, names = append(out, names[0]), names[1:]
			continue
		}
		inner := strings.Join(names[:n], ", ")
		if n == 1 {
			inner += ","
		}
		out, names = append(out, "("+inner+")"), names[n:]
	}
	return out
}

func (f *Func) exprs(es []*Expr, c *Class) string {
	parts := make([]string, len(es))
	for i, e := range es {
		parts[i] = f.expr(e, c)
	}
	return strings.Join(parts, ", ")
}

func (f *Func) stmt(s *Stmt, c *Class) string {
	value := func() string {
		if s.Value == nil {
			return "(" + f.exprs(s.Values, c) + ")"
		}
		return f.expr(s.Value, c)
	}
	t := f.targets(s)
	var out string
	switch s.Kind {
	case Assign:
		out = t + " = " + value()
	case Append:
		out = t + ".append(" + value() + ")"
	case Extend:
		out = t + " += " + value()
	case ListNew:
		out = t + " = []"
	case Del:
		out = "del " + t
	case Return:
		out = "return " + value()
	case FastReturn:
		out = "if inference: return " + value()
	case Expression:
		out = value()
	case SetAttr:
		out = "self." + s.Path + " = " + value()
	case Batch:
		out = t + " = next_batch()"
		if s.Last {
			out += " of the last size"
		}
	case Backward:
		out = value() + ".backward()"
		if s.Retain {
			out += " retaining the graph"
		}
	case OptStep:
		out = fmt.Sprintf("optimizer %d: step", s.Optimizer)
		if s.Closure != nil {
			out += " of"
			for i := range s.Closure.Body {
				out += " [" + s.Closure.stmt(&s.Closure.Body[i], c) + "]"
			}
		}
	case ZeroGrad:
		out = fmt.Sprintf("optimizer %d: zero_grad(set_to_none=%v)", s.Optimizer, s.SetToNone)
	case EmptyCache:
		out = "empty_cache()"
	case Unscale:
		out = fmt.Sprintf("optimizer %d: scaler.unscale_()", s.Optimizer)
	case ClipNorm:
		out = fmt.Sprintf("optimizer %d: clip_grad_norm_(%v)", s.Optimizer, s.Number)
	case ClipValue:
		out = fmt.Sprintf("optimizer %d: clip_grad_value_(%v)", s.Optimizer, s.Number)
	case UpdateScale:
		out = "scaler.update()"
	case RateStep:
		out = fmt.Sprintf("optimizer %d: scheduler.step()", s.Optimizer)
	case ScheduleStep:
		out = t + " = [], schedule.step()"
	case SetMode:
		out = fmt.Sprintf("%s: eval mode %v", s.Model, s.Eval)
	}
	if s.Requires != nil {
		unless := ""
		if s.Unless {
			unless = "not "
		}
		out = "if " + unless + f.expr(s.Requires, c) + ".requires_grad: " + out
	}
	switch s.Grad {
	case NoGrad:
		out += " without gradients"
	case EnableGrad:
		out += " with gradients"
	}
	if s.Every > 1 {
		out += fmt.Sprintf(" every %d steps", s.Every)
		if s.Rest() > 0 {
			out += fmt.Sprintf(" from step %d", s.Begin)
		}
	}
	return out
}

func (f *Func) expr(e *Expr, c *Class) string {
	switch e.Kind {
	case Local:
		return f.Slots[e.Slot]
	case Item:
		return fmt.Sprintf("%s[%d]", f.Slots[e.Slot], e.Index)
	case Pop:
		return f.Slots[e.Slot] + ".pop()"
	case Attr:
		return "self." + e.Path
	case Pick:
		return fmt.Sprintf("%s[%d]", f.exprs(e.Args, c), e.Index)
	case ListLit:
		return "[" + f.exprs(e.Args, c) + "]"
	case TupleLit:
		return "(" + f.exprs(e.Args, c) + ",)"
	case Star:
		return "*" + f.exprs(e.Args, c)
	case Slice:
		return fmt.Sprintf("%s[%s]", f.exprs(e.Args, c), e.Path)
	case Times:
		return fmt.Sprintf("%s * %d", f.exprs(e.Args, c), e.Index)
	case Concat:
		return fmt.Sprintf("concat(%s)", f.exprs(e.Args, c))
	case Scalar:
		return f.exprs(e.Args, c) + ".item()"
	case Arith:
		return fmt.Sprintf("%s(%s)", e.Path, f.exprs(e.Args, c))
	case Const:
		return Literal(e.Value)
	case CallMod:
		return fmt.Sprintf("self.%s(%s)", c.Children[e.Child].Path, f.exprs(e.Args, c))
	case CallModel:
		if e.Base {
			return fmt.Sprintf("%s.base(%s)", e.Model, f.exprs(e.Args, c))
		}
		return fmt.Sprintf("%s(%s)", e.Model, f.exprs(e.Args, c))
	case CallGrad:
		return fmt.Sprintf("grad%+v(%s)", *e.Grad, f.exprs(e.Args, c))
	case CallFun:
		return fmt.Sprintf("%s(%s)", e.Func.Name, f.exprs(e.Args, c))
	}
	args := f.exprs(e.Args, c)
	for _, g := range e.Given {
		args += fmt.Sprintf(", %s=%s", g.Name, Literal(g.Value))
	}
	return fmt.Sprintf("%s(%s)", e.Row.Name, args)
}
