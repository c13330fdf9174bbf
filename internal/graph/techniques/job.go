package techniques

import (
	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// Job is a job whose models are elaborated, with what its spec asks of them.
type Job struct {
	Spec   *spec.Spec // mistakes are its own
	Job    *program.Job
	Models []Model // in the order of the job's

	Env         *module.Env // of the classes that are made
	Batch       int64
	Torch       torchver.Version
	Checkpoints func() bool              // whether train.checkpoint asks for them
	ClassName   func(name string) string // makes a name of a class that no other has

	Plan []Planned // of parallelize_module

	DeepSpeed *spec.DeepSpeed // the configuration of its engine; nil: there is none

	Warnings    *[]note.Note
	NotModelled *[]note.Note // what is asked for and left out

	made map[any]*program.Class // classes of layers, by what they depend on
}

// Planned is the style of the modules that a pattern names.
type Planned struct {
	Pattern spec.String
	Style   program.Style
}

// Model is what of a model the spec says, or a preset.
type Model struct {
	Name       string
	At         spec.Span
	Use        *spec.Model // as the job's own spec writes it
	Loaded     *hf.Weights // nil: they are not read from a checkpoint
	Params     spec.Env    // of the spec that defines it
	Checkpoint program.Patterns
	Shrunk     *Shrinking // while it was elaborated; nil: it was not
	Type       string     // model_type of a Hugging Face model; "" of any other
}

// onDevice reports whether the model is read to the GPU, before anything changes it.
func (m *Model) onDevice() bool { return m.Loaded != nil && m.Loaded.OnDevice }

func (j *Job) fail(at spec.Span, format string, args ...any) { j.Spec.Errs.Failf(at, format, args...) }

func (j *Job) model(name string) *Model {
	for i := range j.Models {
		if j.Models[i].Name == name {
			return &j.Models[i]
		}
	}
	return nil
}

// Quantize replaces linear layers by quantized ones in the models that the spec
// asks it for. What a model says of itself stands in the place of what the job
// says of all.
func (j *Job) Quantize() {
	for i, m := range j.Models {
		q := m.Use.Quantize
		if q == nil {
			q = j.Spec.Quantize
		}
		if w := m.Loaded; w != nil && w.Quantize != nil {
			spec.Try(func() { j.loadedQuantized(&m, j.Job.Models[i]) })
		}
		if q != nil && q.Bits.V != 0 {
			spec.Try(func() { j.quantized(m.Name, j.Job.Models[i], q) })
		}
	}
}

// Prune masks the weights of the models that the spec asks it for, and reports
// names of layers that there are not.
func (j *Job) Prune() {
	for i, m := range j.Models {
		p := m.Use.Prune
		if p == nil {
			p = j.Spec.Prune
		}
		switch {
		case p == nil || p.Amount.V == 0:
		case m.Shrunk != nil:
			moduleNames(j.Spec.Errs, p.Modules, "layer", m.Shrunk.Layers)
			moduleNames(j.Spec.Errs, p.Except, "layer", m.Shrunk.Layers)
		default:
			spec.Try(func() { j.masked(m.Name, j.Job.Models[i], p) })
		}
	}
}

// LoRA adds adapters to the models that the spec asks it for. What a model says
// of itself stands in the place of what the job says of all.
func (j *Job) LoRA() {
	for i, m := range j.Models {
		l := m.Use.LoRA
		if l == nil {
			l = j.Spec.LoRA
		}
		if l != nil && !j.Job.Models[i].Eval {
			spec.Try(func() { j.adapters(m.Name, j.Job.Models[i], l) })
		}
	}
}

// Apart refuses what is not modelled together: a moving average and offloaded
// parameters are elaborated over modules as they were before others took their
// places.
func (j *Job) Apart() {
	changed := false
	for i, m := range j.Job.Models {
		if m.Quantized != nil && m.Loaded == nil {
			m.Root.Walk(func(path string, c *program.Class) {
				if others := c.OtherTypes(j.Job.DType); len(others) > 0 {
					j.fail(j.Models[i].At, "%s has a dtype of its own, which is not modelled in a model with quantize", program.Join(path, others[0].Name))
				}
			})
		}
		changed = changed || m.Adapters != nil || m.Quantized != nil || m.Pruned != nil
	}
	switch {
	case !changed:
	case j.Job.EMA != nil:
		j.fail(j.Models[0].At, "a moving average (ema) of a model with lora, quantize or prune is not modelled")
	case j.Job.Offload.Parameters:
		j.fail(j.Models[0].At, "offloaded parameters of a model with lora, quantize or prune are not modelled")
	}
}
