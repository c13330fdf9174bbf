package exporttorch

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// parallelStyles are the classes of the styles of parallelize_module.
var parallelStyles = map[string]string{program.Colwise: "ColwiseParallel", program.Rowwise: "RowwiseParallel", program.Sequence: "SequenceParallel",
	program.PrepareInput: "PrepareModuleInput", program.PrepareOutput: "PrepareModuleOutput"}

// tensorParallelImports prints what parallelize_module and its arguments are imported
// from.
func (s *script) tensorParallelImports(t *program.TP) {
	var layouts []string
	names := []string{"parallelize_module"}
	if t.Loss {
		names = append(names, "loss_parallel")
	}
	add := func(to *[]string, name string) {
		if !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for i := range t.Modules {
		m := &t.Modules[i]
		add(&names, parallelStyles[m.Name])
		used := []*program.Placement{m.Input, m.Output}
		for _, x := range m.Prepared {
			used = append(used, x.As, x.Desired)
		}
		for _, p := range used {
			if p != nil {
				name, _, _ := strings.Cut(p.Python(), "(")
				add(&layouts, name)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(layouts)
	if s.job.Parallel.FSDP == nil {
		s.line("from torch.distributed.device_mesh import init_device_mesh")
	}
	if len(layouts) > 0 {
		s.line("from torch.distributed.tensor import " + strings.Join(layouts, ", "))
	}
	s.line("from torch.distributed.tensor.parallel import " + strings.Join(names, ", "))
}

// parallelize prints the calls of parallelize_module.
func (s *script) parallelize(model string) {
	t := s.job.Parallel.TP
	if t == nil {
		return
	}
	s.mesh()
	s.line("plan = {")
	s.indent++
	for i := range t.Modules {
		m := &t.Modules[i]
		s.printf("\"%s\": %s(%s),", s.path(m.Path), parallelStyles[m.Name], styleArguments(&m.Style))
	}
	s.indent--
	s.line("}")
	s.line("for name, style in plan.items():")
	s.indent++
	s.printf("parallelize_module(%s.get_submodule(name), %s, style)", s.modelName(model), tensorMesh(&s.job.Parallel))
	s.indent--
}

// styleArguments prints those of a style.
func styleArguments(m *program.Style) string {
	var args []string
	if m.Input != nil {
		args = append(args, "input_layouts="+m.Input.Python())
	}
	if m.Output != nil {
		args = append(args, "output_layouts="+m.Output.Python())
	}
	if m.Prepares() {
		what := strings.TrimPrefix(m.Name, "prepare_")
		as, desired := make([]*program.Placement, len(m.Prepared)), make([]*program.Placement, len(m.Prepared))
		for i, x := range m.Prepared {
			as[i], desired[i] = x.As, x.Desired
		}
		args = append(args, what+"_layouts="+layouts(as), "desired_"+what+"_layouts="+layouts(desired))
	}
	if m.Local != (m.Name != program.Sequence && m.Name != program.PrepareInput) {
		args = append(args, "use_local_output="+program.Literal(m.Local))
	}
	return strings.Join(args, ", ")
}

// layouts prints some placements, of which some are None.
func layouts(of []*program.Placement) string {
	all := make([]string, len(of))
	for i, p := range of {
		if all[i] = "None"; p != nil {
			all[i] = p.Python()
		}
	}
	if len(all) == 1 {
		return "(" + all[0] + ",)"
	}
	return "(" + strings.Join(all, ", ") + ")"
}
