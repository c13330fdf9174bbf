package exporttorch

import "github.com/memplan/memplan/internal/program"

// scriptNames are what every script defines or uses at its top level.
var scriptNames = []string{
	"bring_back", "closure", "copy_stream", "covers", "device", "ema", "evaluate", "fnmatch", "json", "move_gradient", "next_batch", "next_eval_batch", "offload", "optimizers", "os", "pack",
	"prefetch", "print", "range", "resident", "scaler", "share", "step", "step_parameter", "units", "unpack", "upcoming",
}

// stepName is the name of a local variable of the step: one that would hide a
// name of the script gets an underscore.
func (s *script) stepName(name string) string {
	if s.globals == nil {
		s.globals = map[string]bool{}
		for _, n := range scriptNames {
			s.globals[n] = true
		}
		for _, m := range s.job.Models {
			s.globals[m.Name] = true
		}
		for _, o := range s.job.Optimizers {
			s.globals[o.Name] = true
		}
		for _, c := range s.job.Aux.Children {
			s.globals[c.Path] = true
		}
		s.kept = map[string]string{}
		kept := s.job.Kept
		if e := s.job.Eval; e != nil {
			kept = append(kept[:len(kept):len(kept)], e.Kept...)
			for _, c := range e.Aux.Children {
				s.globals[c.Path] = true
			}
		}
		for _, k := range kept {
			name := k.Name
			for s.globals[name] && s.kept[k.Name] == "" {
				name += "_"
			}
			s.globals[name], s.kept[k.Name] = true, name
		}
	}
	if s.globals[name] {
		return name + "_"
	}
	return name
}

// keptName is the variable of a keep.
func (s *script) keptName(name string) string {
	s.stepName("")
	return s.kept[name]
}

// local is the name of a local variable of the function being printed.
func (p *printer) local(slot int) string {
	name := p.fn.Slots[slot]
	if p.fn.Kind == program.StepFunc {
		return p.stepName(name)
	}
	return name
}
