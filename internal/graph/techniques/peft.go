package techniques

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// tuner is a method of PEFT that puts layers around others, as a section of the spec
// asks for it.
type tuner struct {
	name     string // of the section
	at       spec.Span
	targets  *spec.Targets
	task     spec.String
	bias     string
	defaults map[string][]string // target_modules by model type
	lora     *spec.LoraConfig    // nil: another method
	linear   bool                // the names of linear layers are targets, too
	dropout  bool                // adapters of parameters have lora_dropout
	// parameters have adapters beside those of target_parameters; joined is of how many modules
	// of earlier releases one is made, by its name.
	parameters []spec.String
	joined     map[string]int
	old        string // the names of these modules and the model's type
	// wrap makes the class that goes around a layer; args are those of the class
	// in a script.
	wrap func(path string, base *program.Class, dtype tensor.DType) (class *program.Class, args string)
	// weight is that of the orthogonal regularization in the loss; nil: there is none.
	weight   *float64
	onDevice bool // the model that is changed is on the GPU
}

// place is where a mistake in the targets is.
func (t *tuner) place() spec.Span {
	if v := t.targets.TargetModules; v != nil {
		return v.Span
	}
	return t.at
}

// PEFT changes the models as get_peft_model of PEFT does.
func (j *Job) PEFT() {
	p := j.Spec.PEFT
	if p == nil {
		return
	}
	spec.Try(func() {
		if c := p.Prompts(); c != nil {
			j.prompts(p, c)
			return
		}
		t := j.tuner(p)
		for i := range j.Models {
			m := &j.Models[i]
			switch {
			case m.Use.LoRA != nil:
				j.fail(m.Use.LoRA.At, "lora and peft exclude each other")
			case j.Spec.LoRA != nil:
				j.fail(j.Spec.LoRA.At, "lora and peft exclude each other; peft: {lora: {...}} has PEFT's own keys")
			case !j.Job.Models[i].Eval:
				spec.Try(func() { j.tune(m, j.Job.Models[i], t, p) })
			}
		}
	})
}

// tuner reads which method the section asks for.
func (j *Job) tuner(p *spec.PEFT) *tuner {
	switch {
	case p.LoRA != nil:
		t := j.loraTuner(p.LoRA)
		t.linear, t.dropout = p.Linear.V, p.Dropout.V
		return t
	case p.IA3 != nil:
		return j.ia3Tuner(p.IA3)
	case p.OFT != nil:
		t := j.oftTuner(p.OFT)
		t.linear = p.Linear.V
		return t
	case p.BOFT != nil:
		t := j.boftTuner(p.BOFT)
		t.linear = p.Linear.V
		return t
	case p.AdaLoRA != nil:
		t := j.adaloraTuner(p.AdaLoRA)
		t.linear = p.Linear.V
		return t
	}
	j.fail(p.At, "peft needs a method, such as lora: {r: 8}")
	return nil
}

// tune wraps the layers of a model that a method targets.
func (j *Job) tune(m *Model, pm *program.Model, t *tuner, p *spec.PEFT) {
	a := &program.Adapters{Bias: t.bias, OnHost: !m.onDevice() && !j.dividedByLoad(m), DType: tensor.Float32, Kept: !p.Autocast.V, Lower: j.Spec.Trainer.OfTRL() && pm.Quantized != nil, Cast: j.castByEngine()}
	saved := j.savedNames(t)
	targeted := j.targeted(m, pm, t, saved)
	layers, head := j.adaptable(pm)
	chunk, _ := m.Params.Lookup("loss_chunk")
	chunked := chunk != nil && chunk != int64(0)
	known := map[string]*program.Class{}
	for _, l := range layers {
		known[l.Path] = l.Class
	}
	groups := adapterGroups{}
	t.onDevice = !a.OnHost
	for _, path := range targeted {
		base := known[path]
		if base == nil {
			j.fail(t.place(), "%s.target_modules: %s is no layer that an adapter goes around (Linear, Conv1D, Conv1d to Conv3d, Embedding)", t.name, path)
		}
		if returnsTuple(base) {
			at := t.at
			if v := t.targets.TargetModules; v != nil {
				at = v.Span
			}
			j.fail(at, "%s.target_modules: %s returns a tuple, with which PEFT's adapter fails; leave it out, such as with exclude_modules: [%s]", t.name, path, path[strings.LastIndexByte(path, '.')+1:])
		}
		if chunked && path == head {
			j.fail(t.at, "%s: SFTTrainer computes no chunked loss with an adapter around %s; leave the module out of target_modules, or write loss_type: nll", t.name, path)
		}
		class, args := t.wrap(path, base, j.adapterType(base.AdapterType(base.Params[0].DType), p.Autocast.V, a.Lower))
		a.Layers = append(a.Layers, program.Place{Path: path, Class: class})
		groups.add(path, class, args)
	}
	if t.lora != nil {
		j.parameters(m, pm, t, a, &groups, p.Autocast.V)
	}
	a.Groups = groups.condensed(pm.Root.ModulePaths())
	a.Modules = j.endings(pm, saved)
	j.savedModules(pm, a, t.at)
	a.Kernels = j.kernels(m, p)
	a.Fused = j.fuse(m, pm.Root, a, false)
	if l := j.Spec.Trainer; t.weight != nil && l.OfTransformers() && l.Args().Number("label_smoothing_factor") != 0 { // the model is given no labels, and returns no loss
		t.weight = nil
	}
	if a.Regularized = t.weight; t.weight != nil {
		if chunked {
			j.fail(t.at, "%s: SFTTrainer's chunked loss fails with AdaLoRA, whose model is not found in it; write loss_type: nll", t.name)
		}
		a.Fused = append(a.Fused, j.regularized(pm.Root, a, t.at))
	}
	pm.Adapters = a
}

// castByEngine reports whether DeepSpeed's engine converts a model with its adapters, which it
// does not where their parameters are divided.
func (j *Job) castByEngine() bool {
	return j.Spec.Parallel.IsDeepSpeed() && j.Spec.Parallel.Casts && j.DeepSpeed.Zero.Stage.V < 3
}

// dividedByLoad reports whether from_pretrained divides a model by zero.Init, which makes it on
// the GPU.
func (j *Job) dividedByLoad(m *Model) bool {
	return j.Spec.Parallel.IsDeepSpeed() && j.DeepSpeed.Zero.Stage.V == 3 && m.Loaded != nil
}

// sharded reports whether fully_shard moves the model to the GPUs, with the adapters in it.
func (j *Job) sharded() bool { return j.Spec.Parallel != nil && j.Spec.Parallel.FSDP.Set }

// adapterType is the type that the weights of an adapter have at last: with
// autocast_adapter_dtype no half precision, and what SFTTrainer makes of that, or DeepSpeed's
// engine, which converts the model unless its parameters are divided.
func (j *Job) adapterType(made tensor.DType, autocast, lower bool) tensor.DType {
	switch {
	case j.castByEngine():
		return DeepSpeedType(j.DeepSpeed)
	case lower:
		return tensor.BFloat16
	case autocast && made.IsHalf():
		return tensor.Float32
	}
	return made
}

// returnsTuple reports whether a class that stands for a layer returns more than a tensor.
func returnsTuple(c *program.Class) bool {
	return c.Forward != nil && slices.ContainsFunc(c.Forward.Body, func(s program.Stmt) bool {
		return s.Kind == program.Return && (len(s.Values) > 1 || s.Value != nil && s.Value.Kind == program.TupleLit)
	})
}

// heads are the names that a task adds to modules_to_save.
var heads = map[string][]string{"SEQ_CLS": {"classifier", "score"}, "TOKEN_CLS": {"classifier", "score"}, "QUESTION_ANS": {"qa_outputs"}}

// savedNames are modules_to_save with those that the task adds.
func (j *Job) savedNames(t *tuner) []spec.String {
	saved := slices.Clone(t.targets.ModulesToSave)
	for _, h := range heads[t.task.V] {
		saved = append(saved, spec.String{V: h, At: t.task.At})
	}
	return saved
}

// endings are the paths that end with one of the names; a name that the spec gives
// must be one's.
func (j *Job) endings(m *program.Model, names []spec.String) (out program.Patterns) {
	paths := m.Root.ModulePaths()
	for _, n := range names {
		found := false
		for _, p := range paths {
			if p != "" && strings.HasSuffix(p, n.V) {
				found = true
				if !slices.Contains(out, p) {
					out = append(out, p)
				}
			}
		}
		if !found && n.Set { // that of a task need not be there
			j.unmatched(n, "modules_to_save")
		}
	}
	return out
}

// adapterGroups are the layers by the class that goes around them and its arguments.
type adapterGroups struct {
	list []*adapterGroup
}

type adapterGroup struct {
	program.AdapterGroup
	paths map[string]bool
	order []string
}

func (g *adapterGroups) add(path string, class *program.Class, args string) {
	for _, x := range g.list {
		if x.Layer.Layer == class.Layer && x.Args == args {
			x.paths[path], x.order = true, append(x.order, path)
			return
		}
	}
	g.list = append(g.list, &adapterGroup{program.AdapterGroup{Layer: class, Args: args}, map[string]bool{path: true}, []string{path}})
}

var digits = regexp.MustCompile(`\d+`)

// condensed are the groups with patterns of their paths: numbers become stars where
// that names no other module.
func (g *adapterGroups) condensed(known []string) (out []program.AdapterGroup) {
	byPattern := map[string][]string{}
	for _, k := range known {
		q := starred(k)
		byPattern[q] = append(byPattern[q], k)
	}
	patterns := slices.Sorted(maps.Keys(byPattern))
	for _, x := range g.list {
		tried := map[string]bool{}
		for _, path := range x.order {
			q := starred(path)
			only, seen := tried[q]
			if !seen {
				only = true
				for _, other := range patterns {
					if (program.Patterns{q}).Fits(other) {
						for _, k := range byPattern[other] {
							only = only && x.paths[k]
						}
					}
				}
				if tried[q] = only; only {
					x.Layers = append(x.Layers, q)
				}
			}
			if !only {
				x.Layers = append(x.Layers, path)
			}
		}
		out = append(out, x.AdapterGroup)
	}
	return out
}

// starred is a path with stars in the place of its parts that are numbers.
func starred(path string) string {
	parts := strings.Split(path, ".")
	for i, p := range parts {
		if digits.FindString(p) == p && p != "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}
