package exporttorch

import (
	"slices"

	"github.com/memplan/memplan/internal/program"
)

// typed is a function of the script that converts a model some of whose tensors
// have types of their own.
const typed = `

def typed(model, dtype, own):
    """Converts a model on the CPU; own: the tensors that have another type."""
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        if t.is_floating_point():
            t.data = t.data.to(own.get(name, dtype))
    return model
`

// ownTypes lists the parameters and buffers of a model that have another type
// than the model, as items of a dict.
func (s *script) ownTypes(m *program.Model) []string {
	var out []string
	for _, root := range s.roots(m) {
		root.Walk(func(path string, c *program.Class) {
			for _, p := range c.OtherTypes(s.job.DType) {
				if item := `"` + s.path(program.Join(path, p.Name)) + `": ` + program.Literal(p.DType); !slices.Contains(out, item) {
					out = append(out, item)
				}
			}
		})
	}
	return out
}

// hasOwnTypes reports whether the script needs typed.
func (s *script) hasOwnTypes() bool {
	return slices.ContainsFunc(s.job.Models, func(m *program.Model) bool { return m.Loaded != nil || s.ownTypes(m) != nil })
}

// typed prints what makes a model of several types and moves it to the GPU.
func (s *script) typed(m *program.Model) {
	s.line(s.wrapped(s.modelName(m.Name)+" = typed("+s.made(m)+", "+program.Literal(s.job.DType)+", {", s.ownTypes(m), "})"))
	if m.Pruned != nil {
		s.pruning(m)
	}
	if !s.job.Offload.Parameters && s.job.Parallel.FSDP == nil { // fully_shard moves what it takes
		s.printf("%s.to(device)", s.modelName(m.Name))
	}
}
