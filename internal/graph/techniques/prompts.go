package techniques

import (
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// prompts trains what computes the virtual tokens of PEFT, which the models have
// (specs/hf/prompts.yaml), and copies of modules_to_save.
func (j *Job) prompts(p *spec.PEFT, c *spec.PromptLearningConfig) {
	for i := range j.Models {
		m, pm := &j.Models[i], j.Job.Models[i]
		switch {
		case m.Use.LoRA != nil || j.Spec.LoRA != nil:
			j.fail(c.At, "lora and peft exclude each other")
		case m.Type == "":
			j.fail(c.At, "peft: virtual tokens are modelled in front of models of transformers; name one by model: {hf: config.json}")
		case pm.Eval:
			continue
		}
		a := &program.Adapters{Bias: "none", OnHost: !m.onDevice(), DType: tensor.Float32, Kept: true, Prompt: promptEncoder}
		if t := p.Prompt; t != nil && !a.OnHost && t.Init.V != "RANDOM" {
			a.Sampled = true
		}
		a.Recurrent = p.Recurrent()
		a.Again = a.Recurrent && !a.OnHost && pm.Quantized == nil
		a.Modules = j.endings(pm, j.savedNames(&tuner{task: c.TaskType, targets: &spec.Targets{ModulesToSave: c.ModulesToSave}}))
		j.savedModules(pm, a, c.At)
		if pm.Adapters = a; pm.Loaded != nil {
			pm.Loaded.Without = promptEncoder
		}
	}
}

// promptEncoder is the module that computes virtual tokens.
const promptEncoder = "prompt_encoder"

// ofPrompts reports whether a path is of what PEFT puts around a model with virtual tokens,
// when the weights are there.
func (j *Job) ofPrompts(path string) bool {
	first, _, _ := strings.Cut(path, ".")
	return j.Spec.PEFT.Prompts() != nil && (first == promptEncoder || first == "word_embeddings")
}
