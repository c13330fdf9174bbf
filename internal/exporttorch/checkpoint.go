package exporttorch

import (
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// call prints the call of a module or function with keywords (", a=1"), through
// torch.utils.checkpoint if the program says so.
func (p *printer) call(e *program.Expr, callee, keywords string) string {
	args := p.arguments(e)
	if e.Checkpoint == nil {
		return callee + "(" + strings.Join(args, ", ") + keywords + ")"
	}
	n := len(args)
	for n > 0 && n <= len(e.Names) && e.Names[n-1] != "" {
		n--
		keywords = ", " + args[n] + keywords
	}
	return p.checkpoint(e.Checkpoint, callee, strings.Join(args[:n], ", "), keywords)
}

// checkpoint prints the call of torch.utils.checkpoint. What has keywords is
// called through functools.partial, which works with both implementations.
func (p *printer) checkpoint(c *program.Checkpoint, callee, args, keywords string) string {
	reentrant := ", use_reentrant=" + program.Literal(c.Reentrant) + ")"
	if c.Segments > 0 {
		if c.Chain != nil {
			parts := make([]string, len(c.Chain))
			for i, k := range c.Chain {
				parts[i] = p.child(k)
			}
			callee = p.wrapped("[", parts, "]")
		}
		return "torch.utils.checkpoint.checkpoint_sequential(" + callee + ", " + strconv.FormatInt(c.Segments, 10) + ", " + args + reentrant
	}
	if keywords != "" {
		callee = "functools.partial(" + callee + keywords + ")"
	}
	if len(c.Save) > 0 {
		contexts, alternate := "torch.utils.checkpoint.create_selective_checkpoint_contexts", ""
		if len(c.Alternate) > 0 {
			contexts, alternate = "alternating_contexts", ", "+operators(c.Alternate)
			p.calls(contexts)
		}
		args += ", context_fn=functools.partial(" + contexts + ", " + operators(c.Save) + alternate + ")"
	}
	return "torch.utils.checkpoint.checkpoint(" + callee + ", " + args + reentrant
}

// operators prints a list of operators as torch dispatch sees them.
func operators(rows []*op.Op) string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = "torch.ops.aten." + r.Name + ".default"
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// child prints a submodule as the code of its class names it.
func (p *printer) child(i int) string {
	path := p.class.Children[i].Path
	if p.self == "" {
		return p.criterion(path)
	}
	text := p.attr(path)
	if text[0] != '[' {
		return p.self + text
	}
	return strings.TrimSuffix(p.self, ".") + text
}

// checkpoints reports whether the script calls torch.utils.checkpoint, and
// whether it needs functools for it.
func checkpoints(job *program.Job) (uses, partial bool) {
	var expr func(e *program.Expr, c *program.Class)
	expr = func(e *program.Expr, c *program.Class) {
		if e == nil {
			return
		}
		if k := e.Checkpoint; k != nil {
			uses = true
			partial = partial || len(k.Save) > 0 || len(e.Names) > 0 || e.Kind == program.CallMod && len(c.Children[e.Child].Class.ForwardGiven) > 0
		}
		for _, a := range e.Args {
			expr(a, c)
		}
	}
	fn := func(f *program.Func, c *program.Class) {
		if f == nil { // a module inside of a library's
			return
		}
		for _, s := range f.Statements() {
			expr(s.Value, c)
			for _, v := range s.Values {
				expr(v, c)
			}
		}
	}
	class := func(c *program.Class) {
		c.Walk(func(_ string, c *program.Class) {
			for _, f := range append(c.Methods[:len(c.Methods):len(c.Methods)], c.Forward) {
				fn(f, c)
			}
		})
	}
	for _, m := range job.Models {
		class(m.Root)
	}
	script := func(f *program.Func, aux *program.Class) {
		fn(f, aux)
		for _, g := range aux.Methods {
			fn(g, aux)
		}
		for _, ch := range aux.Children {
			class(ch.Class)
		}
	}
	fn(job.Before, job.Aux)
	script(job.Step, job.Aux)
	if e := job.Eval; e != nil {
		script(e.Fn, e.Aux)
	}
	return uses, partial
}
