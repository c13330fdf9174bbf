package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// Options are what a job depends on beside its spec.
type Options struct {
	// Batch replaces train.batch_size unless it is 0.
	Batch int64
	// Env holds the facts about device and version that shapes may depend on.
	Env op.Env
	// Preset returns the text of a preset; nil means there are none.
	Preset func(name string) ([]byte, error)
	// Presets lists the names of presets.
	Presets []string
	// HFTypes lists the model types of Hugging Face that there are presets for.
	HFTypes []string
	// ReadFile reads a file that a spec names, by its path from the spec's
	// folder; nil means that there are no files.
	ReadFile func(name string) ([]byte, error)
	// Hub has the configurations of models by their names; nil has those of the table.
	Hub *hub.Hub
}

// Result is a job with what was found on the way.
type Result struct {
	Job *program.Job
	// Definer is the spec that defines the first model: the job's own, or a
	// preset, read with its params.
	Definer *spec.Spec
	// Loop is the file with the statements of the job's trainer; nil: it has none.
	Loop *spec.Spec
	// NotModelled lists what the spec asks for and memplan does not model. What
	// is missing in an operator stands in its row.
	NotModelled []note.Note
	// Warnings are about what a spec says and surely does not mean.
	Warnings []note.Note
	// Configurations are where those of models that are named come from.
	Configurations []string
	// Data is what the data section says of host memory.
	Data Data
}

// A FileError says that a file which a spec names cannot be read.
type FileError struct {
	Err error // with the place in the spec
}

func (e *FileError) Error() string { return e.Err.Error() }

// building is a job while it is built.
type building struct {
	*elaborator
	opts        Options
	others      []*spec.Errors               // of presets
	users       map[*spec.Errors]spec.String // how and where the spec names them
	unread      bool                         // a file that the spec names could not be read
	notModelled []note.Note                  // what is asked for and left out
	configs     []string                     // where configurations come from
	asked       map[string]any               // params of all models of transformers
	data        Data
	graphs      *program.Compiled // of torch.compile
	deepspeed   *spec.DeepSpeed   // its configuration; nil: there is none
}

// Build turns a spec into a job. The error, if any, is a *spec.Errors. A spec in
// which spec.Parse found mistakes may be passed: what needs no shapes is checked
// too, so that all mistakes of a file come at once.
func Build(s *spec.Spec, o Options) (*Result, error) {
	el := &building{opts: o, asked: hf.Asked(s.Trainer), users: map[*spec.Errors]spec.String{}, elaborator: &elaborator{
		spec: s, errs: s.Errs, meter: s.Env.Meter(), shapes: &op.Shapes{E: o.Env, Meter: s.Env.Meter()}, cache: map[string]*elaborated{}, names: map[string]int{}, sizes: map[*program.Func]int{}, bad: map[inFile]bool{}, badBlocks: map[*spec.Block]bool{},
		batch: s.Train.BatchSize.V,
		parts: 1,
		gpus:  s.Parallel,
		plan:  s.Parallel.Planned(s.Errs),
	}}
	el.shapes.E.Training, el.shapes.E.GradMode = true, true
	if o.Batch > 0 {
		el.batch = o.Batch
	}
	job := &program.Job{
		Name: s.Name.V, Batch: el.batch, Static: s.Data.Input.V == "static", Rebind: s.Data.Input.V == "rebind", Flat: s.Train.Loop.V == "flat", FromZero: s.Train.FirstStep.V == 0,
		DType: precisions[s.Train.Precision.V], Autocast: strings.HasPrefix(s.Train.Precision.V, "amp-"), LowerType: lowerTypes[s.Train.Precision.V],
		Scaler: s.Train.Precision.V == "amp-fp16" && s.Mode.V == "train", Determ: s.Train.Deterministic.V, Benchmark: s.Train.CudnnBenchmark.V,
		ChannelsLast: s.Train.ChannelsLast.V,
	}
	job.NoSDPA = el.noSDPA()
	switch s.Mode.V {
	case "inference":
		job.Inference = "inference_mode"
	case "no_grad":
		job.Inference = "no_grad"
	}
	job.Prefetch = s.Data.DevicePrefetch.V && !job.Static
	job.Rebind = job.Rebind && !job.Prefetch
	if m := s.Model; m != nil && m.DType.Set && s.Trainer != nil {
		job.DType = s.Errs.DType(m.DType)
	}
	el.job = job
	el.shapes.E.ChannelsLast = job.ChannelsLast
	el.shapes.E.Autocast, el.shapes.E.AutocastDType = job.Autocast, job.LowerType
	if !spec.Try(el.deepSpeed) {
		return nil, el.firstErr()
	}
	if !spec.Try(func() { techniques.PipelineKeys(s, el.batch) }) {
		return nil, el.firstErr()
	}
	if p := s.Parallel; p != nil && p.PP.Set {
		el.parts = p.Microbatches.V
	}
	el.trainerOptimizer()
	el.trainerNotes()
	el.compiled()
	el.check()
	if !s.Errs.AllContained() {
		return nil, s.Errs.Err()
	}
	el.run()
	if err := el.firstErr(); err != nil {
		if el.unread {
			return nil, &FileError{err}
		}
		return nil, err
	}
	r := &Result{Job: job, Definer: el.ms[0].spec, Loop: el.loop, NotModelled: append(s.NotModelled(), el.notModelled...), Configurations: el.configs, Data: el.data}
	el.replay(r)
	var fails []note.Note
	for _, d := range el.fails {
		fails = append(fails, note.WouldFail.New("%s; the job would fail", d.Msg).At(d.file, d.Line))
	}
	for i := range r.NotModelled {
		r.NotModelled[i].Text = spec.InFile(r.NotModelled[i].Text, s.Errs.Keys)
	}
	r.Warnings = slices.Concat(s.Warnings(), el.unused(), el.idle(), fails, el.warnings)
	return r, nil
}

// unused warns of inputs that nothing takes.
func (el *building) unused() []note.Note {
	if el.spec.Trainer.OfTokens() && el.loop != nil {
		return nil
	}
	used := map[string]bool{}
	word := func(w string) { used[w] = true }
	var out []note.Note
	for _, m := range el.ms {
		for _, in := range m.inputs {
			used[in] = true
		}
		spec.Words(m.def.Loss, word)
	}
	if el.spec.Model != nil {
		spec.Words(el.spec.Model.Loss, word)
	}
	spec.Words(el.spec.Before, word)
	spec.Words(el.spec.Step, word)
	if el.spec.Eval != nil {
		spec.Words(el.spec.Eval.Step, word)
	}
	for _, m := range el.ms {
		for _, in := range m.def.Inputs {
			if n := in.Name.V; !used[n] && (m.spec == el.spec || in.V.From.V != spec.FromStep) {
				used[n] = true
				out = append(out, placed(note.UnusedInput.New("input %q (%s:%d) is never used", n, m.spec.Path, in.Name.At.Line), m.spec, in.Name.At.Line))
			}
		}
	}
	return out
}

// precisions maps train.precision to the type of parameters.
var precisions = map[string]tensor.DType{
	"fp32": tensor.Float32, "amp-bf16": tensor.Float32, "amp-fp16": tensor.Float32, "bf16": tensor.BFloat16, "fp16": tensor.Float16,
}

// lowerTypes maps train.precision to the type of autocast.
var lowerTypes = map[string]tensor.DType{"amp-bf16": tensor.BFloat16, "amp-fp16": tensor.Float16}

// run elaborates the step and, through it, the models. After a mistake it goes on
// with what does not depend on it.
func (el *building) run() {
	models := spec.Try(el.models)
	inputs := models && spec.Try(el.inputs)
	if models && !el.badOptim {
		el.badOptim = !spec.Try(el.optimizers) || el.badOptim
	}
	if inputs {
		if len(el.lostInputs) == 0 {
			spec.Try(func() { el.data = el.readData(&el.spec.Data) })
		}
		if spec.Try(el.loadLoop) && spec.Try(el.ema) && spec.Try(el.step) {
			spec.Try(el.change)
		}
	}
}

// models collects the models; presets are read here.
func (el *building) models() {
	add := func(name string, m *spec.Model, at spec.Span) {
		x := &model{name: name, def: m, use: m, spec: el.spec, at: at, eval: m.Eval.V, lost: map[string]bool{}}
		if x.shrunk = techniques.NewShrinking(el.errs, el.spec.Prune); m.Prune != nil {
			x.shrunk = techniques.NewShrinking(el.errs, m.Prune)
		}
		from := len(el.others)
		switch {
		case m.OfHF():
			x.spec, x.hfType, x.loaded, x.deviation = el.loadHF(m)
			x.def = x.spec.Model
		case m.Preset.Set:
			x.spec = el.loadPreset(m)
			x.def = x.spec.Model
		case len(m.Layers) == 0:
			el.fail(at, "%s needs layers (or preset)", name)
		}
		if m.Load != nil && x.loaded == nil {
			el.fail(m.Load.At, "load says how a Hugging Face model is read from its checkpoint; this model has no hf:")
		}
		for _, e := range el.others[from:] {
			el.users[e] = presetOf(m)
		}
		if why, _ := x.spec.Env.Lookup(RefusedParam); spec.Truth(why) {
			el.refuses(x, why)
		}
		el.as(x, func() { x.def = el.given(x.def) })
		x.inputs = forwardInputs(x.def, x.spec.Env)
		el.ms = append(el.ms, x)
	}
	if m := el.spec.Model; m != nil {
		add("model", m, m.At)
	}
	for _, m := range el.spec.Models {
		add(m.Name.V, m.V, m.Name.At)
	}
	if t := el.spec.Teacher; t != nil && el.job.Inference == "" {
		add(spec.TeacherName, &t.Model, t.At)
		x := el.ms[len(el.ms)-1]
		x.eval, x.helps = true, true
	}
	if r := el.spec.Reference(); r != nil && r.OfHF() && el.job.Inference == "" {
		warnings, notModelled, fails := el.warnings, el.notModelled, el.fails // which the model has said
		add(spec.ReferenceName, r, r.At)
		el.ms[len(el.ms)-1].helps = true
		el.warnings, el.notModelled, el.fails = warnings, notModelled, fails
	}
}

// RefusedParam is the param in which a spec says why its params do not go together;
// null: they do.
const RefusedParam = "refused"

// refuses ends with what a spec says of its params.
func (el *building) refuses(m *model, why any) {
	if m.spec != el.spec {
		el.fail(m.use.Preset.At, "preset %s: %v", m.use.Preset.V, why)
	}
	el.fail(el.spec.Params.Get(RefusedParam).Span, "%v", why)
}

// presetOf says which preset a model of the spec stands for, and where.
func presetOf(m *spec.Model) spec.String {
	if m.HF.Set {
		return spec.String{V: "the model of " + m.HF.V, At: m.HF.At}
	}
	return spec.String{V: "preset " + m.Preset.V, At: m.Preset.At}
}

// loadHF reads the configuration that a model names and the preset of its model type, which it names.
func (el *building) loadHF(m *spec.Model) (s *spec.Spec, modelType string, weights *hf.Weights, deviation float64) {
	var found hf.Found
	defer func() {
		el.unread = el.unread || found.Unread
		if c := found.Configuration; c != "" && !slices.Contains(el.configs, c) {
			el.configs = append(el.configs, c)
		}
		el.warnings, el.notModelled = append(el.warnings, found.Warnings...), append(el.notModelled, found.NotModelled...)
		for _, d := range found.Fails {
			el.fails = append(el.fails, failure{d, el.spec.Path})
		}
	}()
	j := &hf.Job{
		Spec: el.spec, Batch: el.batch, DType: el.job.DType, Torch: el.opts.Env.Torch, SMs: int64(el.opts.Env.SMs), Arch: el.opts.Env.Arch, Inference: el.job.Inference != "", Checkpoints: func() bool { return !m.Eval.V && el.checkpoints() },
		Types: el.opts.HFTypes, Preset: el.opts.Preset, ReadFile: el.opts.ReadFile, Hub: el.opts.Hub, Nested: el.presetOfPreset, Asked: el.asked,
		Parse: func(name string, text []byte, given map[string]any) (*spec.Spec, error) {
			s, err := spec.Parse("preset:"+name, text, spec.Options{Own: true, Params: given})
			if err == nil {
				el.others = append(el.others, s.Errs)
			}
			return s, err
		},
	}
	s = j.Load(m, &found)
	if w := found.Weights; w != nil && el.gpus.IsDeepSpeed() {
		w.Read = w.DType
		if el.gpus.Casts && el.job.DType.IsHalf() {
			if w.OnDevice || len(w.Convert) > 0 { // the engine converts what has another type
				w.Convert = append(slices.Clip(w.Convert), program.Conversion{Modules: program.All, DType: el.job.DType, Engine: true})
			}
			if !w.OnDevice {
				w.DType = el.job.DType
			}
		}
	}
	return s, found.Type, found.Weights, found.Deviation
}

// loadPreset reads a preset with the params that with: gives.
func (el *building) loadPreset(m *spec.Model) *spec.Spec {
	if len(m.Layers) > 0 {
		el.fail(m.Preset.At, "preset and layers exclude each other")
	}
	if el.opts.Preset == nil {
		el.errs.Unknown(m.Preset.At, "preset", m.Preset.V, el.opts.Presets)
		panic(spec.Stop{})
	}
	text, err := el.opts.Preset(m.Preset.V)
	if err != nil {
		el.errs.Unknown(m.Preset.At, "preset", m.Preset.V, el.opts.Presets)
		panic(spec.Stop{})
	}
	var with []spec.Pair
	if w := m.With; w != nil {
		if w.Kind != spec.Map && w.Kind != spec.Null {
			el.fail(w.Span, "with is a mapping from params to values, not %s", w.Describe())
		}
		with = w.Pairs
	}
	given, ok := map[string]any{}, true
	for _, p := range with {
		ok = spec.Try(func() { given[p.Key.Str] = el.eval(p.Value, el.spec.Env) }) && ok
	}
	own := el.spec.Trainer.OwnParams(m.Preset.V)
	el.ownParams(with, given, own)
	s, err := spec.Parse("preset:"+m.Preset.V, text, spec.Options{Own: true, Params: el.withOwn(given), Meter: el.meter})
	if s != nil {
		for _, p := range with {
			if _, known := s.Env.Lookup(p.Key.Str); !known {
				allowed := slices.DeleteFunc(s.ParamNames(), func(n string) bool { _, ok := own[n]; return ok || n == RefusedParam })
				el.errs.Unknown(p.Key.Span, "param of preset "+m.Preset.V, p.Key.Str, allowed)
				ok = false
			}
		}
	}
	if !ok {
		panic(spec.Stop{})
	}
	if err != nil {
		el.fail(m.Preset.At, "preset %s: %v", m.Preset.V, err)
	}
	el.others = append(el.others, s.Errs)
	if s.Model == nil {
		el.fail(m.Preset.At, "preset %s is a job with several models, and cannot take the place of one model", m.Preset.V)
	}
	if m.Preset.V == spec.MegatronPreset {
		el.shareMegatron(s)
	}
	return el.presetOfPreset(s)
}

// presetOfPreset loads the preset whose params s sets, if s is such a preset.
// Blocks that s has of its own go along, with the params that they use; params of
// the other name them.
func (el *building) presetOfPreset(s *spec.Spec) *spec.Spec {
	if !s.Model.Preset.Set {
		return s
	}
	outer := s
	el.as(&model{spec: s}, func() { s = el.loadPreset(s.Model) })
	s.Share(outer)
	s.Inherit(outer)
	return s
}

// firstErr are the mistakes of the spec or, if there are none, of the first
// preset that has some, with the place where the spec names it.
func (el *building) firstErr() error {
	if err := el.spec.Errs.Err(); err != nil {
		return err
	}
	for _, e := range el.others {
		if err := e.Err(); err != nil {
			for _, d := range el.fails {
				if d.Hint != "" { // which is why
					el.spec.Errs.Addf(d.Span, "%s; %s", d.Msg, d.Hint)
				}
			}
			if err := el.spec.Errs.Err(); err != nil {
				return err
			}
			if use, ok := el.users[e]; ok {
				el.spec.Errs.Addf(use.At, "%s cannot be made with these values of with: and train:", use.V)
				return errors.Join(el.spec.Errs, err)
			}
			return err
		}
	}
	return nil
}

// given is the model with the inputs whose conditions hold.
func (el *building) given(m *spec.Model) *spec.Model {
	sc := &scope{parent: el.spec.Env, vars: el.globals()}
	out := *m
	out.Inputs = nil
	for _, in := range m.Inputs {
		if in.V.If == nil || spec.Truth(el.eval(in.V.If, sc)) {
			out.Inputs = append(out.Inputs, in)
		}
	}
	return &out
}

// forwardInputs lists the inputs that a model's forward takes: the first, and
// those that its layers name, but for layers that params rule out.
func forwardInputs(m *spec.Model, params spec.Env) []string {
	if len(m.Inputs) == 0 {
		return []string{"x"}
	}
	used := map[string]bool{m.Inputs[0].Name.V: true}
	layers := slices.DeleteFunc(slices.Clone(m.Layers), func(e *spec.Entry) bool {
		if e.If == nil {
			return false
		}
		x, err := e.If.Eval(params)
		return err == nil && !spec.Truth(x)
	})
	spec.Words(layers, func(w string) { used[w] = true })
	var out []string
	for _, i := range m.Inputs {
		if used[i.Name.V] {
			out = append(out, i.Name.V)
		}
	}
	return out
}

// inputs collects the tensors of a batch from all models.
func (el *building) inputs() {
	seen := map[string]string{}
	for _, m := range el.ms {
		for _, in := range m.def.Inputs {
			if !spec.Try(func() { el.as(m, func() { el.input(m, in, seen) }) }) {
				el.lostInputs = append(el.lostInputs, in.Name.V)
			}
		}
	}
	if !slices.ContainsFunc(el.ms, func(m *model) bool { return len(m.def.Inputs) > 0 }) {
		el.fail(el.ms[0].at, "a model needs inputs, such as {image: {shape: [3, 32, 32]}}")
	}
}

// input collects one input of m; seen holds those of all models by name.
func (el *building) input(m *model, in *spec.Named[spec.Input], seen map[string]string) {
	if in.V.From.V == spec.FromStep {
		if in.V.Shape != nil || in.V.DType.Set {
			el.fail(in.Name.At, "input %q comes from the step, whose value has its shape and type; shape and dtype are of tensors of a batch", in.Name.V)
		}
		return
	}
	if in.V.Shape == nil {
		el.fail(in.Name.At, "input %q needs a shape, without the batch dimension; [] for one number a sample", in.Name.V)
	}
	sc := &scope{parent: m.spec.Env, vars: el.globals()}
	size := append([]int64{el.batch}, el.shape(in.V.Shape, sc)...)
	d := el.errs.DType(in.V.DType)
	if !in.V.DType.Set && el.job.DType.IsHalf() && (el.spec.Trainer == nil || el.spec.Trainer.Lightning != nil) { // the others convert nothing
		d = el.job.DType
	}
	what := fmt.Sprintf("%s of %v", tensor.SizeString(size), d)
	if old, ok := seen[in.Name.V]; ok {
		if old != what {
			el.fail(in.Name.At, "input %q is %s here, but %s in another model", in.Name.V, what, old)
		}
		return
	}
	seen[in.Name.V] = what
	if _, err := tensor.MulBytes(append(append([]int64(nil), size...), d.Size())...); err != nil {
		el.fail(in.Name.At, "input of shape %s: %v", tensor.SizeString(size), err)
	}
	el.job.Inputs = append(el.job.Inputs, program.Input{Name: in.Name.V, Size: size, DType: d})
}

// noSDPA are the backends of scaled_dot_product_attention that train.sdpa leaves out.
func (el *elaborator) noSDPA() op.SDPA {
	names := el.spec.Train.SDPA
	if len(names) == 0 {
		return 0
	}
	off := op.SDPA(1<<len(op.SDPANames) - 1)
	for _, n := range names {
		i := slices.Index(op.SDPANames, n.V)
		if i < 0 {
			el.errs.Unknown(n.At, "backend of scaled_dot_product_attention", n.V, op.SDPANames)
			continue
		}
		off &^= 1 << i
	}
	return off
}
