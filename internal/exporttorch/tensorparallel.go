package exporttorch

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// parallelStyles are the classes of the styles of parallelize_module.
var parallelStyles = map[string]string{program.Colwise: "ColwiseParallel", program.Rowwise: "RowwiseParallel", program.Sequence: "SequenceParallel"}

// tensorParallelImports prints what parallelize_module and its arguments are imported
// from.
func (s *script) tensorParallelImports(t *program.TP) {
	var layouts []string
	names := []string{"parallelize_module"}
	add := func(to *[]string, name string) {
		if !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for i := range t.Modules {
		m := &t.Modules[i]
		add(&names, parallelStyles[m.Name])
		for _, p := range []*program.Placement{m.Input, m.Output} {
			if p != nil {
				name, _, _ := strings.Cut(p.Python(), "(")
				add(&layouts, name)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(layouts)
	s.line("from torch.distributed.device_mesh import init_device_mesh")
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
	s.printf("mesh = init_device_mesh(\"cuda\", (%d,))", s.job.Parallel.Ranks)
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
	s.printf("parallelize_module(%s.get_submodule(name), mesh, style)", s.modelName(model))
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
	if m.Name == program.Sequence {
		args = append(args, "use_local_output=True")
	}
	return strings.Join(args, ", ")
}
