package exporttorch

import (
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// covers is a function of the script that reads patterns of paths as memplan
// does.
const covers = `
def covers(patterns, path):
    """Whether a path, or that of a module in which it lies, matches one of the patterns."""
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:n]), p) for p in patterns for n in range(len(parts) + 1))
`

// patterns reports whether the script needs covers.
func patterns(j *program.Job) bool {
	for _, m := range j.Models {
		if len(m.Frozen) > 0 || m.Adapters != nil || m.Quantized != nil || m.Pruned != nil || converts(m) {
			return true
		}
	}
	for _, o := range j.Optimizers {
		if len(o.Params)+len(o.Groups) > 0 {
			return true
		}
	}
	return j.Offload.Away != nil
}

// quoted prints patterns as a list of strings.
func quoted(p program.Patterns) string {
	parts := make([]string, len(p))
	for i, q := range p {
		parts[i] = program.Literal(q)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// freeze prints what takes parameters out of training.
func (s *script) freeze() {
	for _, m := range s.job.Models {
		if m.Adapters == nil || !m.Adapters.OnHost {
			s.freezeModel(m)
		}
	}
}

// freezeModel prints the loop that freezes parameters of a model.
func (s *script) freezeModel(m *program.Model) {
	if len(m.Frozen) > 0 {
		cond := "covers(" + s.patterns(m.Frozen, m) + ", name)"
		if len(m.Trained) > 0 {
			cond += " and not covers(" + s.patterns(m.Trained, m) + ", name)"
		}
		s.printf("for name, p in %s.named_parameters(remove_duplicate=False):", s.modelName(m.Name))
		s.indent++
		s.printf("if %s:", cond)
		s.indent++
		s.line("p.requires_grad_(False)")
		s.indent -= 2
	}
}
