package exporttorch

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// printer prints the statements of one function.
type printer struct {
	*script
	fn    *program.Func
	class *program.Class
	self  string // "self." inside of a class

	evaluating bool // inside of evaluate
}

func (p *printer) names(slots []int) string {
	names := make([]string, len(slots))
	for i, s := range slots {
		names[i] = p.local(s)
	}
	return strings.Join(names, ", ")
}

// unpacked is the left-hand side of an unpacking; one name needs its comma.
func (p *printer) unpacked(s *program.Stmt) string {
	names := make([]string, len(s.Targets))
	for i, t := range s.Targets {
		names[i] = p.local(t)
	}
	names = s.Nested(names)
	t := strings.Join(names, ", ")
	if s.Unpack && len(names) == 1 {
		t += ","
	}
	return t
}

func (p *printer) stmt(s *program.Stmt) {
	switch s.Kind {
	case program.Assign:
		if s.InPlace {
			if sign := augmented[s.Value.Row.Name]; sign != "" {
				p.printf("%s %s %s", p.names(s.Targets), sign, p.expr(s.Value.Args[1]))
				return
			}
		}
		if s.Value == nil {
			p.printf("%s = %s", p.names(s.Targets), p.list(s.Values))
			return
		}
		p.printf("%s = %s", p.unpacked(s), p.expr(s.Value))
	case program.Append:
		p.printf("%s.append(%s)", p.names(s.Targets), p.expr(s.Value))
	case program.Extend:
		p.printf("%s += %s", p.names(s.Targets), p.expr(s.Value))
	case program.ListNew:
		p.printf("%s = []", p.names(s.Targets))
	case program.Del:
		p.printf("del %s", p.names(s.Targets))
	case program.Return:
		if s.Value != nil {
			p.printf("return %s", p.expr(s.Value))
		} else {
			p.printf("return %s", p.list(s.Values))
		}
	case program.SetAttr:
		p.printf("%s%s = %s", p.self, s.Path, p.expr(s.Value))
	case program.Expression:
		p.line(p.expr(s.Value))
	case program.Batch:
		switch {
		case s.Last && p.job.Static:
			p.printf("%s = last_eval_batch", p.unpacked(s))
		case s.Last:
			p.printf("%s = next_last_eval_batch()", p.unpacked(s))
			p.copied(s)
		case p.evaluating && p.job.OwnBatches() && p.job.Static:
			p.printf("%s = eval_batch", p.unpacked(s))
		case p.evaluating && p.job.OwnBatches():
			p.printf("%s = next_eval_batch()", p.unpacked(s))
			p.copied(s)
		case p.job.Static:
			p.printf("%s = batch", p.unpacked(s))
		case p.job.Prefetch:
			p.line("torch.cuda.current_stream().wait_stream(copy_stream)")
			p.printf("%s = upcoming", p.unpacked(s))
			p.line("upcoming = prefetch()")
		default:
			p.printf("%s = next_batch()", p.unpacked(s))
			p.copied(s)
		}
	case program.Backward:
		loss, keyword := p.expr(s.Value), ""
		if p.job.Scaler {
			loss = "scaler.scale(" + loss + ")"
		}
		if s.Retain {
			keyword = "retain_graph=True"
		}
		if d := p.job.Parallel.DeepSpeed; d != nil {
			p.engineBackward(d, loss, keyword)
			return
		}
		p.printf("%s.backward(%s)", loss, keyword)
	case program.OptStep:
		if d := p.job.Parallel.DeepSpeed; d != nil {
			if !d.Trainer { // there it is a part of the backward pass
				p.printf("%s.step()", p.modelName(p.job.Models[0].Name))
			}
			return
		}
		if o := p.job.Optimizers[s.Optimizer].Name; p.job.Scaler {
			p.printf("scaler.step(%s)", p.optimizerName(o))
		} else {
			p.optimizerStep(o, p.closure(s))
		}
	case program.Unscale:
		p.printf("scaler.unscale_(%s)", p.optimizerName(p.job.Optimizers[s.Optimizer].Name))
	case program.ClipNorm, program.ClipValue:
		o := p.job.Optimizers[s.Optimizer]
		name := "clip_grad_norm_"
		if s.Kind == program.ClipValue {
			name = "clip_grad_value_"
		}
		norm := ""
		if len(s.Targets) > 0 {
			norm = p.names(s.Targets) + " = "
		}
		if f := p.job.Parallel.FSDP; f != nil && f.Flat != nil && s.Kind == program.ClipNorm {
			p.printf("%s%s.clip_grad_norm_(%s)", norm, p.modelName(o.Models[0]), program.Literal(s.Number))
			return
		}
		p.printf("%snn.utils.%s(%s, %s)", norm, name, p.gradients(o), program.Literal(s.Number))
	case program.RateStep:
		p.printf("%s.step()", p.schedulerName(p.job.Optimizers[s.Optimizer].Name))
	case program.UpdateScale:
		p.line("scaler.update()")
	case program.ZeroGrad:
		p.printf("%s.zero_grad(set_to_none=%s)", p.optimizerName(p.job.Optimizers[s.Optimizer].Name), program.Literal(s.SetToNone))
		p.zeroOnDevice(s)
	case program.EmptyCache:
		p.line("torch.cuda.empty_cache()")
	case program.ToDevice:
		for _, m := range p.job.Models {
			if m.Adapters != nil && m.Adapters.Recurrent {
				p.printf("%s.to(device)", p.modelName(m.Name))
			}
		}
		p.printf("for state in %s.state.values():", p.optimizerName(p.job.Optimizers[s.Optimizer].Name))
		p.line("    for key, value in state.items():")
		p.line("        state[key] = value.to(device)")
	case program.KeepValue:
		p.keep(s)
	case program.SetMode:
		method := "train"
		if s.Eval {
			method = "eval"
		}
		p.printf("%s.%s()", p.modelName(s.Model), method)
	case program.GradSync:
		p.gradSync(s)
	case program.ScheduleStep:
		p.scheduleStep(s)
	case program.UpdateEMA:
		p.printf("%s.update_parameters(%s)", p.modelName(p.job.EMA.Name), p.modelName(p.job.EMA.Model))
	}
}

// copied copies a batch that was made on the CPU, under the same names.
func (p *printer) copied(s *program.Stmt) {
	if !p.job.Rebind {
		return
	}
	copies := make([]string, len(s.Targets))
	inputs := p.job.Inputs
	if p.evaluating {
		inputs = p.job.Eval.Inputs
	}
	for i, t := range s.Targets {
		copies[i] = p.local(t) + p.move(inputs[i], "")
	}
	p.printf("%s = %s", p.names(s.Targets), strings.Join(copies, ", "))
}

// augmented maps in-place rows to Python's augmented assignments.
var augmented = map[string]string{"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/="}

func (p *printer) list(es []*program.Expr) string {
	parts := make([]string, len(es))
	for i, e := range es {
		parts[i] = p.expr(e)
	}
	return strings.Join(parts, ", ")
}

// arguments prints the arguments of a call, some of them by keyword.
func (p *printer) arguments(e *program.Expr) []string {
	parts := make([]string, len(e.Args))
	for i, a := range e.Args {
		if parts[i] = p.expr(a); i < len(e.Names) && e.Names[i] != "" {
			parts[i] = p.keyword(e, i) + "=" + parts[i]
		}
	}
	return parts
}

// keyword is the name of an argument of a module's forward: a block's own, or
// that of a module of torch.nn.
func (p *printer) keyword(e *program.Expr, i int) string {
	if c := p.class.Children[e.Child].Class; c.Forward != nil && c.IsBlock() {
		return p.name(nameKey{local, c.Forward, e.Names[i]})
	}
	return e.Names[i]
}

func (p *printer) expr(e *program.Expr) string {
	switch e.Kind {
	case program.Local:
		return p.local(e.Slot)
	case program.Item:
		return fmt.Sprintf("%s[%d]", p.local(e.Slot), e.Index)
	case program.Pop:
		return p.local(e.Slot) + ".pop()"
	case program.Attr:
		return p.self + p.attr(e.Path)
	case program.Pick:
		return fmt.Sprintf("%s[%d]", p.operand(e.Args[0]), e.Index)
	case program.ListLit:
		return "[" + p.list(e.Args) + "]"
	case program.Const:
		return program.Literal(e.Value)
	case program.TupleLit:
		return p.tuple(e)
	case program.Star:
		return "*" + p.operand(e.Args[0])
	case program.Slice:
		return fmt.Sprintf("%s[%s]", p.operand(e.Args[0]), e.Path)
	case program.Times:
		return fmt.Sprintf("%s * %d", p.operand(e.Args[0]), e.Index)
	case program.Concat:
		return p.operand(e.Args[0]) + " + " + p.operand(e.Args[1])
	case program.Scalar:
		return p.operand(e.Args[0]) + ".item()"
	case program.Arith:
		if len(e.Args) == 1 {
			return e.Path + p.operand(e.Args[0])
		}
		return p.operand(e.Args[0]) + " " + e.Path + " " + p.operand(e.Args[1])
	case program.CallMod:
		return p.call(e, p.child(e.Child), forwardKeywords(p.class.Children[e.Child].Class))
	case program.CallGrad:
		return p.autogradGrad(e)
	case program.CallModel:
		return p.modelCall(e)
	case program.CallFun:
		if a := e.Func.Autograd; a != nil {
			return p.className(a.Class) + ".apply(" + p.list(e.Args) + ")"
		}
		if p.self == "" {
			return p.call(e, p.functionName(e.Func), "")
		}
		return p.call(e, p.self+p.name(nameKey{method, p.class, e.Func.Name}), "")
	}
	return p.op(e)
}

// modelCall prints the call of a model.
func (p *printer) modelCall(e *program.Expr) string {
	first := []string{p.model(e.Model, e.Last)}
	if e.Base {
		p.calls("without_adapters")
		first = append([]string{"without_adapters"}, first...)
	}
	if e.Lower {
		p.calls("under_autocast")
		first = append([]string{"under_autocast", program.Literal(p.job.LowerType)}, first...)
	}
	args := first[1:]
	if len(e.Args) > 0 {
		args = append(args, p.list(e.Args))
	}
	return first[0] + "(" + strings.Join(args, ", ") + ")"
}

// tuple prints a literal tuple; one item needs its comma.
func (p *printer) tuple(e *program.Expr) string {
	if len(e.Args) == 1 {
		return "(" + p.expr(e.Args[0]) + ",)"
	}
	return "(" + p.list(e.Args) + ")"
}

// autogradGrad prints a call of torch.autograd.grad.
func (p *printer) autogradGrad(e *program.Expr) string {
	tensors := func(es []*program.Expr) string {
		if len(es) == 1 {
			return p.expr(es[0])
		}
		return "[" + p.list(es) + "]"
	}
	g := e.Grad
	n, m := g.Outputs, g.Outputs+g.Inputs
	text := "torch.autograd.grad(" + tensors(e.Args[:n]) + ", " + tensors(e.Args[n:m])
	if len(e.Args) > m {
		text += ", grad_outputs=" + tensors(e.Args[m:])
	}
	if g.Retains {
		text += ", retain_graph=" + program.Literal(g.Retain)
	}
	if g.Create {
		text += ", create_graph=True"
	}
	return text + ")"
}

// forwardKeywords prints arguments of a library module's forward that were
// given.
func forwardKeywords(c *program.Class) string {
	var b strings.Builder
	for _, g := range c.ForwardGiven {
		fmt.Fprintf(&b, ", %s=%s", g.Name, program.Literal(g.Value))
	}
	return b.String()
}

// op prints the call of an operator as its signature says.
func (p *printer) op(e *program.Expr) string {
	given := map[string]any{}
	for _, g := range e.Given {
		given[g.Name] = g.Value
	}
	python := e.Sig.Python
	p.calls(python)
	args := e.Args
	var texts []string // of the tensor parameters, in order
	for _, a := range args {
		texts = append(texts, p.expr(a))
	}
	if len(python) <= 2 && python != "[]" { // an operator sign
		if e.InPlace {
			return fmt.Sprintf("%s.%s(%s)", p.operand(args[0]), e.Row.Name, texts[1])
		}
		return fmt.Sprintf("%s %s %s", p.operand(args[0]), python, p.operand(args[1]))
	}
	if python == "[]" && len(texts) == 2 && args[1].Kind == program.ListLit { // a tuple of indices
		return fmt.Sprintf("%s[%s]", p.operand(args[0]), p.list(args[1].Args))
	}
	if python == "[]" && len(texts) == 2 { // a tensor in the place of a dimension
		dim, _ := given["dim"].(int64)
		return fmt.Sprintf("%s[%s%s]", p.operand(args[0]), strings.Repeat(":, ", int(dim)), texts[1])
	}
	if python == "[]" {
		return fmt.Sprintf("%s[%s]", p.operand(args[0]), given["index"])
	}
	var out []string
	self := ""
	k := 0
	positional := true
	for i := range e.Sig.Params {
		q := &e.Sig.Params[i]
		text, ok := "", false
		if q.IsTensor() {
			if k < len(texts) && p.takes(e, q, k) {
				text, ok = texts[k], true
				k++
			}
			if q.Name == "self" && ok {
				self = p.operand(args[k-1])
				continue
			}
		} else if v, has := given[q.Name]; has {
			text, ok = p.literal(e, q, v), true
		} else if q.Name == "training" && q.Optional {
			text, ok = p.training(), true
		}
		switch {
		case !ok:
			positional = false
		case positional && !q.KwOnly:
			out = append(out, text)
		default:
			out = append(out, q.Name+"="+text)
			positional = false
		}
	}
	if e.InPlace && !strings.HasPrefix(python, "F.") { // a method whose name ends in "_"
		if self == "" {
			self, out = p.operand(args[0]), out[1:]
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(e.Row.Name, "_"), ".") // "pow.any_"
		return self + "." + name + "_(" + strings.Join(out, ", ") + ")"
	}
	if e.InPlace {
		out = append(out, "inplace=True")
	}
	if len(texts) == 0 { // made from nothing: on the device
		out = append(out, "device=device")
	}
	if name, ok := strings.CutPrefix(python, "Tensor."); ok {
		return self + "." + name + "(" + strings.Join(out, ", ") + ")"
	}
	return python + "(" + strings.Join(out, ", ") + ")"
}

// takes reports whether argument k is the one of tensor parameter q: optional
// tensors may be absent.
func (p *printer) takes(e *program.Expr, q *op.Param, k int) bool {
	if e.Inputs == nil || e.Args[0].Kind == program.Const { // a number stands for the first operand
		return true
	}
	n := 0
	for i := range e.Sig.Params {
		r := &e.Sig.Params[i]
		if !r.IsTensor() {
			continue
		}
		if r == q {
			return n < len(e.Inputs) && (e.Inputs[n] == k || q.Kind == op.KOperand)
		}
		n++
	}
	return false
}

// literal prints an argument; dropout belongs to training alone.
func (p *printer) literal(e *program.Expr, q *op.Param, v any) string {
	text := program.Literal(v)
	list, isList := v.([]int64)
	switch {
	case q.Star && isList && len(list) == 0:
		return "()"
	case q.Star && isList:
		parts := make([]string, len(list))
		for i, n := range list {
			parts[i] = fmt.Sprint(n)
		}
		return strings.Join(parts, ", ")
	case isList && len(list) == 1 && (q.Kind == op.KInts || q.Kind == op.KSizes):
		return fmt.Sprintf("(%d,)", list[0])
	case q.Name == "dropout_p" && p.self == "":
		if p.training() == program.Literal(false) {
			return "0.0"
		}
	case q.Name == "dropout_p":
		return text + " if " + p.training() + " else 0.0"
	}
	return text
}

// training is whether modules are in training mode: what the module at work says of
// itself or, outside of all modules, what is known of the script.
func (p *printer) training() string {
	if p.self != "" {
		return "self.training"
	}
	return program.Literal(p.job.Inference == "" && (!p.evaluating || p.job.Eval.Train))
}

// operand prints an expression where something binds to it: operators and
// negative numbers in parentheses.
func (p *printer) operand(e *program.Expr) string {
	text := p.expr(e)
	switch e.Kind {
	case program.Times, program.Concat, program.Arith:
		return "(" + text + ")"
	}
	if (e.Kind == program.CallOp && len(e.Sig.Python) <= 2 && e.Sig.Python != "[]" && !e.InPlace) || strings.HasPrefix(text, "-") {
		return "(" + text + ")"
	}
	return text
}

// body prints statements, those that follow one another in a context as its block.
func (p *printer) body(stmts []program.Stmt) {
	type steps struct{ every, rest int64 }
	interval := func(s *program.Stmt) steps { return steps{max(s.Every, 1), s.Rest()} }
	runs(stmts, interval, func(run []program.Stmt) {
		if n := interval(&run[0]); n.every > 1 {
			p.printf("if %s %% %d == %d:", p.counter(), n.every, n.rest)
			p.indent++
			defer func() { p.indent-- }()
		}
		runs(run, p.condition, func(run []program.Stmt) {
			if c := p.condition(&run[0]); c != "" {
				p.printf("if %s:", c)
				p.indent++
				defer func() { p.indent-- }()
			}
			runs(run, func(s *program.Stmt) program.GradMode { return s.Grad }, p.inGradMode)
		})
	})
}

// condition is that of a statement which depends on what requires grad; "" for others.
func (p *printer) condition(s *program.Stmt) string {
	switch {
	case s.Requires == nil:
		return ""
	case s.Unless:
		return "not " + p.operand(s.Requires) + ".requires_grad"
	}
	return p.operand(s.Requires) + ".requires_grad"
}

// inGradMode prints statements that stand in one context of gradients.
func (p *printer) inGradMode(stmts []program.Stmt) {
	if m := stmts[0].Grad; m != program.GradAround {
		p.printf("with %s:", m.Python())
		p.indent++
		defer func() { p.indent-- }()
	}
	p.plain(stmts)
}

// runs calls f with each run of statements that have a property in common.
func runs[T comparable](stmts []program.Stmt, of func(s *program.Stmt) T, f func(run []program.Stmt)) {
	for len(stmts) > 0 {
		n := 1
		for n < len(stmts) && of(&stmts[n]) == of(&stmts[0]) {
			n++
		}
		f(stmts[:n])
		stmts = stmts[n:]
	}
}
