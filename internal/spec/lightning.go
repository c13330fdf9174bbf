package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// LightningArguments are those of lightning.Trainer.
type LightningArguments struct{ Arguments }

func (a *LightningArguments) unmarshal(d *decoder, v *Value) {
	a.read(d, v, trainer.Lightning)
	a.Release = ""
}

// inLightning are the keys of train that say in a job of lightning.Trainer what the user's
// module and data loaders do.
var inLightning = []string{"steps", "batch_size", "optimizer", "checkpoint"}

// lightningPrecisions are the other words for values of lightning.Trainer's precision.
var lightningPrecisions = map[string]string{"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}

// lightning gives the sections what the arguments of lightning.Trainer say.
func (s *Spec) lightning(a *Arguments) {
	s.keysOfOthers()
	for _, name := range []string{"devices", "num_nodes", "strategy"} {
		if v, ok := a.Value(name).(*Value); ok && v.Str != "1" && v.Str != "auto" || name == "num_nodes" && a.Int(name) > 1 {
			s.Errs.Addf(a.Span(name), "the loop of lightning.Trainer is modelled on one GPU (devices: 1, strategy: auto); for several, write it as step: with ddp or fsdp")
		}
	}
	s.Train.GradAccumulation = a.integer("accumulate_grad_batches")
	s.Train.Loop.V = "flat"
	precision := "32-true"
	if v, ok := a.Value("precision").(*Value); ok {
		precision = v.Str
	}
	if p, ok := lightningPrecisions[precision]; ok {
		precision = p
	}
	at := a.Span("precision")
	if fabricPrecisions[precision] == "" {
		s.Errs.Addf(at, "precision %q is not modelled; 32-true, bf16-true, 16-true, bf16-mixed and 16-mixed are", precision)
		return
	}
	s.Train.Precision = String{V: fabricPrecisions[precision], At: at, Set: true}
	if v, ok := a.Value("deterministic").(*Value); ok {
		s.Train.Deterministic = Boolean{V: v.Kind == Bool && v.Bool || v.Str == "warn", At: v.Span, Set: true}
	}
	s.Train.CudnnBenchmark = a.boolean("benchmark")
}

// LightningParams are the params of the loop of lightning.Trainer that several arguments
// decide. Evaluations take their batches from eval_dataset.
func (t *Trainer) LightningParams(batch int64) map[string]any {
	a := &t.Lightning.Arguments
	out := map[string]any{"clip_norm": nil, "clip_value": nil, "context": "no_grad", "eval_every": int64(1)}
	if c := a.Number("gradient_clip_val"); c > 0 {
		out["clip_"+cmp.Or(a.Text("gradient_clip_algorithm"), "norm")] = c
	}
	if a.Bool("inference_mode") {
		out["context"] = "inference_mode"
	}
	if n := a.Number("val_check_interval"); n >= 1 && n == float64(int64(n)) {
		out["eval_every"] = max(int64(n)/a.Int("accumulate_grad_batches"), 1)
	}
	batches := (t.EvalSamples() + batch - 1) / batch
	sanity := a.Int("num_sanity_val_steps")
	if a.Value("num_sanity_val_steps") == nil {
		sanity = 2
	}
	out["evaluates"] = t.Evaluates()
	out["eval_batches"] = max(min(batches, 2), 1)
	out["at_start"] = sanity != 0 && !a.Bool("barebones")
	return out
}

// AddTrainingStep adds to a loop the function of the forward pass and a loss, as
// LightningModule has it: it takes a batch, and names its tensors as inputs says. The loss
// is that of the file of.
func (s *Spec) AddTrainingStep(of *Spec, loss *Value, inputs []string) {
	d := &decoder{errs: of.Errs, env: of.Env}
	body := sequence()
	for i, in := range inputs {
		body.Items = append(body.Items, mapping(pair("inputs", word("batch["+strconv.Itoa(i)+"]")), pair("name", word(in))))
	}
	body.Items = append(body.Items, forwardOf("model", "out"))
	body.Items = append(append(body.Items, lossEntries(loss)...), mapping(pair(HeadReturn, word("loss"))))
	params := of.params(body) // which the loop does not have
	const name = "training_step"
	written := func(v string) String { return String{V: v, At: loss.Span, Set: true} }
	b := &Block{At: loss.Span, Of: of, Kind: written("function"), Params: params, Inputs: []String{written("batch")}, Autocast: Boolean{V: true}, Layers: d.entries(body)}
	s.Blocks = append(s.Blocks, &Named[Block]{Name: written(name), V: b})
	s.root.Pairs = append(s.root.Pairs, pair("blocks", mapping(pair(name, mapping(pair("kind", word("function")), pair("params", params), pair("inputs", sequence(word("batch"))), pair(HeadLayers, body))))))
}

// lightningSetting is the argument of lightning.Trainer that says what a key of train says;
// keys of the user's module are as they are.
func lightningSetting(key, value string) (s Setting, own, ok bool) {
	switch key {
	case "grad_accumulation":
		return Setting{"accumulate_grad_batches", value}, true, true
	case "clip_grad_norm":
		return Setting{"gradient_clip_val", value}, true, true
	case "deterministic":
		return Setting{"deterministic", value}, true, true
	case "cudnn_benchmark":
		return Setting{"benchmark", value}, true, true
	case "precision":
		s, ok = fabricSetting(value)
		return s, true, ok
	}
	return Setting{"train." + key, value}, false, slices.Contains(inLightning, strings.Split(key, ".")[0])
}
