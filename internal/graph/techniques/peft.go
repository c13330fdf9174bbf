package techniques

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
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

// unmatched warns of a name that no module has, which PEFT passes over.
func (j *Job) unmatched(n spec.String, key string) {
	*j.Warnings = append(*j.Warnings, note.FitsNothing.New("%s: no module is named %q", key, n.V).Of("peft"))
}

// matcher reports whether a path is meant by target_modules or exclude_modules.
type matcher func(path string) bool

// names reads target_modules or exclude_modules: names of modules, with which a path
// ends, or one regular expression of paths.
func (j *Job) names(v *spec.Value, key string) (list []spec.String, fits matcher) {
	list, lone := j.Spec.Errs.Strings(v, key, j.Spec.Env)
	if lone && len(list) > 0 {
		return nil, j.regexp(list[0], key, "", "")
	}
	return list, ends(list)
}

// regexp compiles a regular expression of Python, which must match a path as a whole
// between before and after. Of assertions, which Go's have not, those at its
// beginning are known.
func (j *Job) regexp(s spec.String, key, before, after string) matcher {
	compile := func(text string) *regexp.Regexp {
		re, err := regexp.Compile(text)
		if err != nil {
			j.fail(s.At, "%s: %q is no regular expression that memplan reads: %v", key, s.V, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		return re
	}
	text := strings.TrimPrefix(s.V, "^")
	var not, also []*regexp.Regexp
	for before == "" && (strings.HasPrefix(text, "(?!") || strings.HasPrefix(text, "(?=")) {
		end := closing(text)
		if end < 0 {
			break
		}
		re := compile("^(?:" + text[3:end] + ")")
		if text[2] == '!' {
			not = append(not, re)
		} else {
			also = append(also, re)
		}
		text = text[end+1:]
	}
	whole := compile("^(?:" + before + "(?:" + text + ")" + after + ")$")
	return func(path string) bool {
		for _, re := range not {
			if re.MatchString(path) {
				return false
			}
		}
		for _, re := range also {
			if !re.MatchString(path) {
				return false
			}
		}
		return whole.MatchString(path)
	}
}

// closing is the index of the parenthesis that closes the one at the beginning; -1 if
// there is none.
func closing(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// targeted lists the paths of the modules that a method changes, in the order of
// Module.named_modules.
func (j *Job) targeted(m *Model, pm *program.Model, t *tuner, saved []spec.String) (out []string) {
	v := t.targets.TargetModules
	var fits matcher
	var list []spec.String
	switch {
	case t.linear:
		list, fits = j.linearNames(m, pm, t)
	case v == nil || v.Kind == spec.Null:
		names := t.defaults[m.Type]
		if t.withParameters() { // PEFT has no defaults then
			return nil
		}
		if names == nil {
			j.fail(t.at, "%s needs target_modules: PEFT has no default for %s", t.name, orModel(m.Type))
		}
		fits = func(path string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return path == n || strings.HasSuffix(path, "."+n) })
		}
	case v.Kind == spec.Str && strings.EqualFold(v.Str, allLinear):
		except := j.outputs(m, pm, t)
		linear := map[string]bool{}
		pm.Root.Walk(func(path string, c *program.Class) {
			if isLinear(c) && !slices.Contains(except, path) {
				linear[path] = true
			}
		})
		fits = func(path string) bool { return linear[path] }
	default:
		list, fits = j.names(v, "target_modules")
	}
	listed := len(list) > 0
	if e := j.joinedIn(m); e != nil && t.lora != nil {
		list, fits = j.ofExperts(m, pm, t, e, list, fits)
	}
	list = slices.DeleteFunc(slices.Clone(list), func(n spec.String) bool { return !n.Set })
	_, excluded := j.names(t.targets.ExcludeModules, "exclude_modules")
	layer := j.layerNumbers(t.targets, listed)
	pm.Root.Walk(func(path string, _ *program.Class) {
		switch {
		case path == "", excluded(path), within(path, saved), !fits(path):
			return
		}
		list = slices.DeleteFunc(list, func(n spec.String) bool { return path == n.V || strings.HasSuffix(path, "."+n.V) })
		if layer(path) {
			out = append(out, path)
		}
	})
	if len(out) == 0 {
		if t.withParameters() {
			return nil
		}
		known, _ := j.adaptable(pm)
		j.fail(t.place(), "%s: target_modules fit no module of the model, with which PEFT fails; layers for an adapter are %s", t.name, someNames(known))
	}
	for _, n := range list {
		j.unmatched(n, "target_modules")
	}
	return out
}

// withParameters reports whether parameters have adapters.
func (t *tuner) withParameters() bool {
	if t.lora == nil {
		return false
	}
	v := t.lora.TargetParameters
	return len(t.parameters) > 0 || v != nil && v.Kind != spec.Null && (v.Kind != spec.List || len(v.Items) > 0)
}

// linearNames are target_modules with the last names of the linear layers but the output
// embedding (find_all_linear_names of axolotl/loaders/adapter.py, find_all_linear_modules of
// llamafactory/model/model_utils/misc.py).
func (j *Job) linearNames(m *Model, pm *program.Model, t *tuner) (list []spec.String, fits matcher) {
	if v := t.targets.TargetModules; v != nil && v.Kind != spec.Null {
		list, _ = j.Spec.Errs.Strings(v, "target_modules", j.Spec.Env)
	}
	list = slices.Clone(list)
	except, found := j.outputs(m, pm, t), map[string]bool{}
	pm.Root.Walk(func(path string, c *program.Class) {
		if isLinear(c) && !slices.Contains(except, path) {
			found[path[strings.LastIndexByte(path, '.')+1:]] = true
		}
	})
	for _, n := range slices.Sorted(maps.Keys(found)) {
		list = append(list, spec.String{V: n, At: t.at})
	}
	return list, ends(list)
}

// ends fits paths that end with one of the names.
func ends(list []spec.String) matcher {
	return func(path string) bool {
		return slices.ContainsFunc(list, func(n spec.String) bool { return path == n.V || strings.HasSuffix(path, "."+n.V) })
	}
}

// within reports whether a module is, or is in, one that is trained as a whole.
func within(path string, saved []spec.String) bool {
	for _, s := range saved {
		if strings.Contains("."+path+".", "."+s.V+".") {
			return true
		}
	}
	return false
}

// outputs are the linear layers that all-linear leaves out: the output embedding of a
// transformers' model, or the head if task_type is SEQ_CLS.
func (j *Job) outputs(m *Model, pm *program.Model, t *tuner) []string {
	if m.Type == "" {
		return nil
	}
	if head := j.outputEmbedding(m, pm); head != "" {
		return []string{head}
	}
	if t.task.V != "SEQ_CLS" {
		return nil
	}
	for _, name := range []string{"score", "classifier"} {
		if slices.Contains(pm.Root.ModulePaths(), name) {
			return []string{name}
		}
	}
	return nil
}

// layerNumber finds the number of a layer in a path, as PEFT does by default.
var layerNumber = regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)

// layerNumbers reads layers_to_transform and layers_pattern.
func (j *Job) layerNumbers(t *spec.Targets, listed bool) matcher {
	v := t.Layers
	if v == nil || v.Kind == spec.Null {
		if p := t.LayersPattern; p != nil && p.Kind != spec.Null {
			j.fail(p.Span, "layers_pattern needs layers_to_transform")
		}
		return func(string) bool { return true }
	}
	if !listed {
		j.fail(v.Span, "layers_to_transform needs target_modules that are a list of names")
	}
	numbers := map[string]bool{}
	items := []*spec.Value{v}
	if v.Kind == spec.List {
		items = v.Items
	}
	for _, it := range items {
		n, ok := j.Spec.Errs.Eval(it, j.Spec.Env).(int64)
		if !ok {
			j.fail(it.Span, "layers_to_transform must be an integer or a list of integers, not %s", it.Describe())
		}
		numbers[fmt.Sprint(n)] = true
	}
	if len(numbers) == 0 {
		return func(string) bool { return true }
	}
	patterns := []*regexp.Regexp{layerNumber}
	if list, _ := j.Spec.Errs.Strings(t.LayersPattern, "layers_pattern", j.Spec.Env); len(list) > 0 {
		patterns = nil
		for _, s := range list {
			re, err := regexp.Compile(`^.*?\.` + s.V + `\.(\d+)\.`)
			if err != nil {
				j.fail(s.At, "layers_pattern: %q is no regular expression that memplan reads", s.V)
			}
			patterns = append(patterns, re)
		}
	}
	return func(path string) bool {
		for _, re := range patterns {
			if m := re.FindStringSubmatch(path); m != nil {
				return numbers[m[1]]
			}
		}
		return false
	}
}

// patternOf reads rank_pattern or alpha_pattern: the value of the first name or
// regular expression with which a path ends; other without one.
func (j *Job) patternOf(v *spec.Value, key string) func(path string, other float64) float64 {
	type entry struct {
		fits  matcher
		value float64
	}
	var list []entry
	if v != nil && v.Kind != spec.Null {
		if v.Kind != spec.Map {
			j.fail(v.Span, "%s must be a mapping from names to numbers, not %s", key, v.Describe())
		}
		for _, p := range v.Pairs {
			n, ok := number(j.Spec.Errs.Eval(p.Value, j.Spec.Env))
			if !ok || n < 1 || key == "rank_pattern" && n != float64(int64(n)) {
				j.fail(p.Value.Span, "%s: %s must be a positive number, not %s", key, p.Key.Str, p.Value.Describe())
			}
			list = append(list, entry{j.regexp(spec.String{V: p.Key.Str, At: p.Key.Span}, key, `(?:.*\.)?`, ""), n})
		}
	}
	return func(path string, other float64) float64 {
		for _, e := range list {
			if e.fits(path) {
				return e.value
			}
		}
		return other
	}
}

func number(x any) (float64, bool) {
	switch n := x.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

func orModel(modelType string) string {
	if modelType == "" {
		return "a model of the spec's own"
	}
	return modelType
}

// someNames lists the last parts of paths, each once.
func someNames(places []program.Place) string {
	var names []string
	for _, p := range places {
		if n := p.Path[strings.LastIndexByte(p.Path, '.')+1:]; !slices.Contains(names, n) && len(names) < 20 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
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
