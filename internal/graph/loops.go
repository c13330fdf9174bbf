package graph

import (
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// litgptLoop adds what the loop of litgpt is given in addition to its arguments, and says
// what this model cannot do.
func (el *building) litgptLoop(given map[string]any) {
	t := el.spec.Trainer
	a := t.Args()
	m := el.ms[0]
	if m.use.OfHF() {
		el.fail(t.At, "trainer: litgpt trains its own model, not one of transformers; write model: {preset: litgpt, with: {n_layer: 32}} with the keys of litgpt.Config")
	}
	if n := len(el.job.Inputs); n != 2 || slices.ContainsFunc(el.job.Inputs, func(in program.Input) bool { return in.DType != tensor.Int64 }) {
		el.fail(m.at, "trainer: litgpt needs a model with two inputs of int64, tokens and targets")
	}
	if m.use.Preset.V != spec.LitGPTPreset {
		for _, name := range a.Table.Names("") {
			if _, ok := t.LitGPTParams()[name]; ok && a.Has(name) {
				el.fail(a.Span(name), "%s is for model: {preset: litgpt}; this model has adapters of its own, or none", name)
			}
		}
	}
	given["accumulation"] = el.spec.Train.GradAccumulation.V
	if a.Text("command") == "pretrain" {
		key := "trainer.litgpt.command"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: pretrain runs torch.compile of the model; the figures are those of eager mode", key).Of(key))
	}
}

// litgptParams gives litgpt's model the params that are arguments of its trainer.
func (el *building) litgptParams(with []spec.Pair, given map[string]any) {
	own := el.spec.Trainer.LitGPTParams()
	for _, p := range with {
		if _, ok := own[p.Key.Str]; ok {
			el.fail(p.Key.Span, "%s is an argument of trainer: litgpt; write it there", p.Key.Str)
		}
	}
	maps.Copy(given, own)
}

// lightningLoop adds what the loop of lightning.Trainer is given in addition to its
// arguments; what it returns adds training_step to the loop.
func (el *building) lightningLoop(given map[string]any) func(loop *spec.Spec) {
	t := el.spec.Trainer
	maps.Copy(given, t.LightningParams(el.batch))
	var names []string
	for _, in := range el.job.Inputs {
		names = append(names, in.Name)
	}
	loss := el.lossOf()
	if loss == nil {
		panic(spec.Stop{})
	}
	from := el.spec
	if loss != el.spec.LossValue() {
		from = el.ms[0].spec
	}
	return func(loop *spec.Spec) { loop.AddTrainingStep(from, loss, names) }
}
