package techniques

import (
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// joined are names of modules that transformers 5 has as parameters, with the parameter
// of each: LoRA's target_modules may still have them (_MOE_TARGET_MODULE_MAPPING in
// peft/utils/transformers_weight_conversion.py).
type joined map[string]string

var (
	joinedMixtral = joined{"gate": "gate.weight", "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
	joinedQwen    = joined{"gate": "gate.weight", "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "down_proj": "down_proj"}
)

// joinedTypes are the model types for which PEFT reads target_modules so
// (_MODEL_TO_CONVERSION_PATTERN in transformers/conversion_mapping.py), of those that
// memplan knows.
var joinedTypes = map[string]joined{
	"mixtral": joinedMixtral, "minimax_m2": joinedMixtral, "afmoe": joinedQwen, "deepseek_v2": joinedQwen, "deepseek_v3": joinedQwen, "glm4_moe": joinedQwen, "glm4_moe_lite": joinedQwen,
	"olmoe": joinedQwen, "qwen3_moe": joinedQwen, "qwen3_next": joinedQwen,
}

// joinedIn are the joined names of a model's type; nil if it has none.
func (j *Job) joinedIn(m *Model) joined {
	if v, _ := m.Params.Lookup("transformers"); v == "4.51" {
		return nil
	}
	return joinedTypes[m.Type]
}

// of is the name of a module that target_modules means by another, or the end of it.
func (e joined) of(target string) string {
	for old := range e {
		if target == old || strings.HasSuffix(target, "."+old) {
			return old
		}
	}
	return ""
}

// ofExperts are the targets of LoRA without those of which PEFT makes targets of parameters
// (_convert_peft_config_moe), with a rank for each module that they are made of. The others are ends of paths: all-linear and a regular
// expression mean the last names of the modules that they fit.
func (j *Job) ofExperts(m *Model, pm *program.Model, t *tuner, e joined, list []spec.String, fits matcher) ([]spec.String, matcher) {
	v := t.targets.TargetModules
	if list == nil && (v == nil || v.Kind == spec.Null) {
		if t.withParameters() {
			return nil, ends(nil)
		}
		j.fail(t.at, "lora needs target_modules: PEFT has no default for %s of transformers 5", m.Type)
	}
	if list == nil {
		list = e.leaves(pm, v, fits)
	}
	found, parameters := map[string]bool{}, map[string]bool{}
	var rest []spec.String
	for _, n := range list {
		if old := e.of(n.V); old != "" {
			found[old], parameters[e[old]] = true, true
		} else {
			rest = append(rest, n)
		}
	}
	for old, param := range e {
		if parameters[param] && !found[old] {
			j.fail(t.place(), "target_modules: %s has one parameter %s for %s; PEFT refuses target_modules without all of these names", m.Type, param, words(e.parts(param)))
		}
	}
	t.joined, t.old = map[string]int{}, words(found)+" of "+m.Type
	for _, param := range slices.Sorted(maps.Keys(parameters)) {
		n := e.parts(param)
		t.parameters = append(t.parameters, spec.String{V: param, At: t.place(), Set: true})
		t.joined[param[strings.LastIndexByte(param, '.')+1:]] = len(n)
	}
	return rest, ends(rest)
}

// parts are the modules that a parameter is made of.
func (e joined) parts(param string) map[string]bool {
	out := map[string]bool{}
	for old, p := range e {
		if p == param {
			out[old] = true
		}
	}
	return out
}

// leaves are the last names of the modules that all-linear or a regular expression fits
// (_resolve_string_target_modules): all-linear means each joined name, and a regular
// expression those that it fits in the place of their parameter.
func (e joined) leaves(pm *program.Model, v *spec.Value, fits matcher) []spec.String {
	found := map[string]bool{}
	leaf := func(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
	for _, path := range append(pm.Root.ModulePaths(), pm.Root.ParamPaths()...) {
		if path != "" && fits(path) {
			found[leaf(path)] = true
		}
	}
	all := strings.EqualFold(v.Str, allLinear)
	for old, param := range e {
		found[old] = found[old] || all || slices.ContainsFunc(pm.Root.ParamPaths(), func(path string) bool {
			return leaf(path) == param && fits(strings.TrimSuffix(path, param)+old)
		})
	}
	maps.DeleteFunc(found, func(_ string, is bool) bool { return !is })
	var out []spec.String
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, spec.String{V: name, At: v.Span})
	}
	return out
}

// words lists names.
func words(names map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
