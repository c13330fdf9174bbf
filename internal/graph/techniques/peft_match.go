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
)

// Which modules a method of PEFT is for.

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
