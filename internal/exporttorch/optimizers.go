package exporttorch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// optimizers prints the constructors of the optimizers.
func (s *script) optimizers() {
	if s.job.InBackward {
		s.inBackward(s.job.Optimizers[0])
		return
	}
	for _, o := range s.job.Optimizers {
		params := s.onCPU(o, s.given(o))
		if z := s.job.Parallel.ZeRO; z != nil {
			s.zero(z, o, params)
			continue
		}
		name := s.optimizerName(o.Name)
		s.printf("%s = %s(%s%s)", name, callee(o), params, arguments(o.Given, ", %s=%s"))
		if o.Row.Ready != "" {
			s.printf("%s.%s", name, o.Row.Ready)
		}
		if f := o.Row.Embeddings; f != nil && f(o.Args) {
			for _, m := range o.Models {
				s.printf("for module in %s.modules():", s.modelName(m))
				s.line("    if isinstance(module, nn.Embedding):")
				s.printf("        %s.mng.register_module_override(module, \"weight\", {\"optim_bits\": 32})", name)
			}
		}
		s.moveGradients(o)
	}
}

// schedulers prints the constructors of what schedules learning rates.
func (s *script) schedulers() {
	for _, o := range s.job.Optimizers {
		if o.Scheduler != nil && !o.Scheduler.Trainer {
			s.printf("%s = %s", s.schedulerName(o.Name), scheduler(o.Scheduler, s.optimizerName(o.Name)))
		}
	}
}

// list is one in Python, of a single number, too.
type list []int64

func (l list) String() string { return strings.ReplaceAll(fmt.Sprint([]int64(l)), " ", ", ") }

// scheduler is the constructor of a scheduler.
func scheduler(of *program.Scheduler, optimizer string) string {
	var parts []string
	for _, p := range of.Parts {
		parts = append(parts, scheduler(p, optimizer))
	}
	schedulers := ""
	if parts != nil {
		schedulers = ", schedulers=[" + strings.Join(parts, ", ") + "]"
	}
	name := of.Row.Signature().Python
	if parts != nil && len(of.Row.Signature().Params) == 0 {
		return fmt.Sprintf("%s([%s], optimizer=%s)", name, strings.Join(parts, ", "), optimizer)
	}
	given := slices.Clone(of.Given)
	for i, g := range given {
		if l, is := g.Value.([]int64); is {
			given[i].Value = list(l)
		}
	}
	return fmt.Sprintf("%s(%s%s%s)", name, optimizer, schedulers, arguments(given, ", %s=%s"))
}

// embeddings32 is the argument of optimizers that is no constructor's.
const embeddings32 = "embeddings_32bit"

// callee is the constructor of an optimizer; those of other packages are
// imported by their names.
func callee(o *program.Optimizer) string {
	if o.Row.Package != "" {
		return o.Row.Signature().Key
	}
	return o.Row.Signature().Python
}

// arguments prints those that were given.
func arguments(given []program.KwArg, format string) string {
	var b strings.Builder
	for _, g := range given {
		if g.Name == embeddings32 {
			continue
		}
		fmt.Fprintf(&b, format, g.Name, program.Literal(g.Value))
	}
	return b.String()
}

// inBackward prints an optimizer for each parameter and the hook in which it
// steps.
func (s *script) inBackward(o *program.Optimizer) {
	s.line("optimizers = {}")
	for _, g := range s.groups(o) {
		s.printf("for p in %s:", g.params)
		s.printf("    optimizers[p] = %s([p]%s)", callee(o), arguments(overlaid(o.Given, g.given), ", %s=%s"))
		if o.Row.Ready != "" {
			s.printf("    optimizers[p].%s", o.Row.Ready)
		}
	}
	s.line("")
	s.line("")
	s.line("def step_parameter(p):")
	s.line("    optimizers[p].step()")
	s.line("    optimizers[p].zero_grad()")
	s.line("")
	s.line("")
	s.line("for p in optimizers:")
	s.line("    p.register_post_accumulate_grad_hook(step_parameter)")
}

// overlaid are the arguments of an optimizer with those of a group in their
// place.
func overlaid(base, own []program.KwArg) []program.KwArg {
	out := slices.DeleteFunc(slices.Clone(base), func(b program.KwArg) bool {
		return slices.ContainsFunc(own, func(o program.KwArg) bool { return o.Name == b.Name })
	})
	return append(out, own...)
}

// given is what an optimizer is constructed with: parameters, or a list of
// parameter groups.
func (s *script) given(o *program.Optimizer) string {
	groups := s.groups(o)
	if len(o.Groups) == 0 {
		return groups[0].params
	}
	var b strings.Builder
	b.WriteString("[\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "    {\"params\": %s%s},\n", g.params, arguments(g.given, ", %q: %s"))
	}
	b.WriteString("]")
	return b.String()
}

// paramGroup is a parameter group: the expression of its parameters, and its own
// arguments.
type paramGroup struct {
	params string
	given  []program.KwArg
}

// groups lists the parameter groups of an optimizer; one if it has none.
func (s *script) groups(o *program.Optimizer) []paramGroup {
	var trained []string
	if s.job.FreezesAny(o) {
		trained = []string{"p.requires_grad"}
	}
	if len(o.Groups) == 0 {
		return []paramGroup{{s.selected(o, trained), nil}}
	}
	var out []paramGroup
	var before []string // what the groups before do not take
	for i, g := range o.Groups {
		conditions := slices.Clone(before)
		if len(g.Params) > 0 {
			taken := "covers(" + s.patterns(g.Params, s.modelsOf(o)...) + ", name)"
			conditions = append([]string{taken}, before...)
			before = append(before, "not "+taken)
		} else {
			for _, later := range o.Groups[i+1:] {
				conditions = append(conditions, "not covers("+s.patterns(later.Params, s.modelsOf(o)...)+", name)")
			}
		}
		out = append(out, paramGroup{s.selected(o, append(conditions, trained...)), g.Given})
	}
	return out
}

// selected are the parameters of an optimizer that fulfil the conditions, on
// name and p.
func (s *script) selected(o *program.Optimizer, conditions []string) string {
	if len(o.Params) > 0 {
		conditions = append([]string{"covers(" + s.patterns(o.Params, s.modelsOf(o)...) + ", name)"}, conditions...)
	}
	all := strings.Join(conditions, " and ")
	models := make([]string, len(o.Models))
	for i, m := range o.Models {
		models[i] = s.modelName(m)
		if s.inDDP[m] && strings.Contains(all, "name)") {
			models[i] += ".module" // names within the model
		}
	}
	model, loop := models[0], ""
	if len(models) > 1 {
		model, loop = "m", "for m in ("+strings.Join(models, ", ")+") "
	}
	switch {
	case strings.Contains(all, "name)"):
		return fmt.Sprintf("[p %sfor name, p in %s.named_parameters() if %s]", loop, model, all)
	case all != "":
		return fmt.Sprintf("[p %sfor p in %s.parameters() if %s]", loop, model, all)
	case loop != "":
		return fmt.Sprintf("[p %sfor p in m.parameters()]", loop)
	}
	return model + ".parameters()"
}

// modelsOf are the models whose parameters an optimizer steps.
func (s *script) modelsOf(o *program.Optimizer) []*program.Model {
	var out []*program.Model
	for _, m := range s.job.Models {
		if slices.Contains(o.Models, m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// parameters are those that an optimizer steps, frozen ones among them, which
// have no gradients.
func (s *script) parameters(o *program.Optimizer) string { return s.selected(o, nil) }

// closure prints the function that a step of an optimizer calls and returns its
// name; "" if there is none.
func (p *printer) closure(s *program.Stmt) string {
	if s.Closure == nil {
		return ""
	}
	p.line("")
	p.line("def closure():")
	p.indent++
	p.statements(&printer{script: p.script, fn: s.Closure, class: p.class}, s.Closure.Body, p.contexts())
	p.indent--
	p.line("")
	return "closure"
}

// packages imports the optimizers that are not PyTorch's. Where a package is not
// installed, a class of the same memory stands in its place.
func (s *script) packages() {
	seen := map[string]bool{}
	for _, o := range s.job.Optimizers {
		row := o.Row
		if row.Package == "" || seen[row.Name] {
			continue
		}
		seen[row.Name] = true
		s.line("")
		if row.Python == "" {
			s.printf("from %s import %s", row.Package, row.Signature().Key)
			continue
		}
		s.line("try:")
		s.printf("    from %s import %s", row.Package, row.Signature().Key)
		s.line("except ImportError:")
		for _, line := range strings.Split(strings.TrimRight(row.Python, "\n"), "\n") {
			if line != "" {
				line = "    " + line
			}
			s.line(line)
		}
	}
}
