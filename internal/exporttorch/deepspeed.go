package exporttorch

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// deepSpeed prints the call that puts DeepSpeed's engine in the place of the model, which it
// moves to the device.
func (s *script) deepSpeed() {
	d := s.job.Parallel.DeepSpeed
	if d == nil {
		return
	}
	model := s.modelName(s.job.Models[0].Name)
	optimizer := "None"
	if len(s.job.Optimizers) > 0 {
		optimizer = s.optimizerName(s.job.Optimizers[0].Name)
	}
	s.printf("%s, _, _, _ = deepspeed.initialize(model=%s, optimizer=%s, config=%s, dist_init_required=False)", model, model, optimizer, dict(d.Config))
}

// engineBackward prints a backward pass by DeepSpeed's engine.
func (p *printer) engineBackward(d *program.DeepSpeed, loss, keyword string) {
	model, args := p.modelName(p.job.Models[0].Name), []string{loss}
	if keyword != "" {
		args = append(args, keyword)
	}
	if d.Trainer {
		args = append(args, "scale_wrt_gas=False")
	}
	p.printf("%s.backward(%s)", model, strings.Join(args, ", "))
	if d.Trainer {
		p.printf("%s.step()", model)
	}
}

// dict prints a dictionary of Python.
func dict(items []program.KwArg) string {
	parts := make([]string, len(items))
	for i, it := range items {
		value := ""
		if inner, ok := it.Value.([]program.KwArg); ok {
			value = dict(inner)
		} else {
			value = program.Literal(it.Value)
		}
		parts[i] = fmt.Sprintf("%q: %s", it.Name, value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
