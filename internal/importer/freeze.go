package importer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// layered is what a config.json says of the number of layers.
type layered struct {
	Layers int64    `json:"num_hidden_layers"`
	Num    int64    `json:"num_layers"`
	N      int64    `json:"n_layer"`
	Text   *layered `json:"text_config"`
}

// layers is how many layers the model has, of which a key has some trained.
func (j *job) layers(at *spec.Value, key string) int64 {
	var c layered
	if j.opts.Config != nil {
		_ = json.Unmarshal(j.opts.Config(j.named), &c) // mistakes are reported where the model is made
	}
	if c.Text != nil {
		c = *c.Text
	}
	for _, n := range []int64{c.Layers, c.Num, c.N} {
		if n > 0 && n <= maxLayers {
			return n
		}
	}
	j.fail(at, "%s: how many layers %s has is not known; --model-config FILE names its config.json", key, j.named)
	return 0
}

// maxLayers bounds the layers of a model.
const maxLayers = 1 << 12

// some are n of a model's layers: the last ones, or the first -n.
func some(layers, n int64) []int64 {
	first, last := max(0, layers-n), layers
	if n <= 0 {
		first, last = 0, min(-n, layers)
	}
	return from(first, last, 1)
}

// from counts from first to last, which is not one of them.
func from(first, last, step int64) (out []int64) {
	for i := first; i < last; i += step {
		out = append(out, i)
	}
	return out
}

// expanded are the layers that LLaMA Pro has added to a model, n of them.
func (j *job) expanded(layers, n int64) []int64 {
	if n < 1 || layers%n != 0 {
		j.fail(j.get("use_llama_pro"), "use_llama_pro: freeze_trainable_layers must divide the number of layers, which is %d; it is %d", layers, n)
	}
	return from(layers/n-1, layers, layers/n)
}

// trained writes patterns of the parameters that are trained: those whose paths contain the
// number of a layer and a module's name, or the name of another module.
func trained(layers []int64, modules, others []string) string {
	var out []string
	for _, m := range modules {
		for _, i := range layers {
			if m == "all" {
				out = append(out, quote(fmt.Sprintf("*.%d.*", i)))
			} else {
				out = append(out, quote(fmt.Sprintf("*.%d.%s*", i, m)))
			}
		}
	}
	for _, m := range others {
		out = append(out, quote("*"+m+"*"))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// freezeBut freezes all parameters but some, and converts those to float32 if upcast.
func (j *job) freezeBut(at *spec.Value, patterns string, upcast bool) {
	j.put("freeze.modules", `["*"]`, at)
	if patterns == "[]" {
		return
	}
	j.put("freeze.except", patterns, at)
	if upcast {
		n := j.out.get("model.load.convert")
		if n == nil {
			n = j.put("model.load.convert", "", at)
		}
		n.list = append(n.list, fmt.Sprintf("{modules: %s, dtype: float32}", patterns))
	}
}

// words are the names in a list, or in a string with commas.
func words(v *spec.Value, otherwise ...string) []string {
	if !given(v) {
		return otherwise
	}
	var out []string
	for _, it := range slices.Concat(v.Items, []*spec.Value{v}) {
		for n := range strings.SplitSeq(it.Str, ",") {
			if n = strings.TrimSpace(n); n != "" {
				out = append(out, n)
			}
		}
	}
	return out
}

// lfFreeze trains some layers alone (_setup_freeze_tuning of model/adapter.py).
func (j *job) lfFreeze(at *spec.Value, upcast bool) {
	if _, ok := composites[j.modelType()]; ok {
		j.fail(at, "finetuning_type: freeze of a model of text and images is not modelled; memplan plans lora and full")
	}
	n, layers := j.whole("freeze_trainable_layers", 2), j.layers(at, "finetuning_type")
	ids := some(layers, n)
	if j.flag("use_llama_pro", false) {
		ids = j.expanded(layers, n)
	}
	j.freezeBut(at, trained(ids, words(j.get("freeze_trainable_modules"), "all"), words(j.get("freeze_extra_modules"))), upcast)
}

// v1Freeze writes the plugin that trains some layers alone (v1/plugins/model_plugins/peft.py).
func (j *job) v1Freeze(p *spec.Value) {
	n := int64(2)
	for _, pair := range p.Pairs {
		switch k, v := pair.Key.Str, pair.Value; k {
		case "name", "freeze_trainable_modules", "freeze_extra_modules":
		case "freeze_trainable_layers":
			if v.Kind != spec.Int || v.Int > maxCount || v.Int < -maxCount {
				j.fail(v, "freeze_trainable_layers must be a whole number, not %s", v.Describe())
			}
			n = v.Int
		case "cast_trainable_params_to_fp32":
			if v.Kind != spec.Bool {
				j.fail(v, "cast_trainable_params_to_fp32 must be true or false, not %s", v.Describe())
			}
		default:
			j.doc.Errs.Unknown(pair.Key.Span, "key of peft_config", k, []string{"name", "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules", "cast_trainable_params_to_fp32"})
		}
	}
	cast := p.Get("cast_trainable_params_to_fp32")
	j.freezeBut(p, trained(some(j.layers(p, "peft_config"), n), words(p.Get("freeze_trainable_modules"), "all"), words(p.Get("freeze_extra_modules"))), cast == nil || cast.Bool)
}
