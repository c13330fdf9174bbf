package graph

import (
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trainer"
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
	el.twoOfTokens(m)
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
		el.notModelled = append(el.notModelled, note.Asked.New("%s: pretrain runs torch.compile of the model; %s", key, trainer.EagerMode).Of(key))
	}
}

// ownParams gives the model of a library the params that are arguments of its trainer.
func (el *building) ownParams(with []spec.Pair, given, own map[string]any) {
	for _, p := range with {
		if _, ok := own[p.Key.Str]; ok {
			el.fail(p.Key.Span, "%s is an argument of trainer: %s; write it there", p.Key.Str, el.spec.Trainer.Key())
		}
	}
	maps.Copy(given, own)
}

// twoOfTokens refuses a model that does not take tokens and targets.
func (el *building) twoOfTokens(m *model) {
	if len(el.lostInputs) > 0 { // which are reported
		panic(spec.Stop{})
	}
	if n := len(el.job.Inputs); n != 2 || slices.ContainsFunc(el.job.Inputs, func(in program.Input) bool { return in.DType != tensor.Int64 }) {
		el.fail(m.at, "trainer: %s needs a model with two inputs of int64, tokens and targets", el.spec.Trainer.Key())
	}
}

// torchtitanLoop adds what the loop of torchtitan is given in addition to its arguments,
// and says what this model cannot do.
func (el *building) torchtitanLoop(given map[string]any) {
	m := el.ms[0]
	if m.use.OfHF() {
		el.fail(el.spec.Trainer.At, "trainer: torchtitan trains its own model, not one of transformers; write model: {preset: torchtitan} and trainer: {torchtitan: {model: {flavor: 8B}}}")
	}
	el.twoOfTokens(m)
	given["accumulation"] = el.spec.Train.GradAccumulation.V
	if m.use.Preset.V == spec.TorchtitanPreset && el.opts.Env.Arch >= cudnnAttention && !el.opts.Env.Torch.PrefersCudnnAttention(el.opts.Env.Arch, el.opts.Env.Cudnn) {
		const key = "trainer.torchtitan"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: on sm_100 and later torchtitan asks for cuDNN's attention first, whose results selective_ac_option: op does not keep; planned is flash attention", key).Of(key))
	}
}

// cudnnAttention is the architecture from which on torchtitan prefers cuDNN's attention
// (torchtitan/models/attention.py: ScaledDotProductAttention).
const cudnnAttention = 100

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
