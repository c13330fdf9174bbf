package importer

import (
	"regexp"
	"slices"
	"strings"
)

// composite names the parts of a model of text and images by what their paths contain
// (model/model_utils/visual.py of LLaMA-Factory).
type composite struct {
	projector, vision, language []string
	conflict                    []string // that adapters never get
}

// composites has the parts by model_type; a part without names has those of part.
var composites = map[string]composite{
	"gemma3":       {},
	"glm4v":        ofQwen("visual.patch_embed", "visual.blocks"),
	"internvl":     {},
	"llava":        {},
	"mistral3":     {projector: []string{"model.multi_modal_projector"}},
	"qwen2_5_vl":   ofQwen("visual.patch_embed", "visual.blocks"),
	"qwen2_vl":     ofQwen("visual.patch_embed", "visual.blocks"),
	"qwen3_vl":     ofQwen("visual.pos_embed", "visual.patch_embed", "visual.blocks", "visual.deepstack_merger_list"),
	"qwen3_vl_moe": ofQwen("visual.pos_embed", "visual.patch_embed", "visual.blocks", "visual.deepstack_merger_list"),
}

// ofQwen has the parts of Qwen's models, and of others that are made like them.
func ofQwen(vision ...string) composite {
	return composite{projector: []string{"visual.merger"}, vision: vision, conflict: []string{"patch_embed"}}
}

// part is a part's own names, or those of most models.
func part(own []string, otherwise ...string) []string {
	if own != nil {
		return own
	}
	return otherwise
}

// frozen lists what the paths contain of the modules that LLaMA-Factory does not train in
// a model of text and images; adapted: with adapters.
func (j *job) frozen(adapted bool) []string {
	c, ok := composites[j.modelType()]
	var out []string
	for _, p := range []struct {
		key       string
		otherwise bool
		names     []string
	}{
		{"freeze_vision_tower", true, part(c.vision, "vision_tower")},
		{"freeze_multi_modal_projector", true, part(c.projector, "multi_modal_projector")},
		{"freeze_language_model", false, part(c.language, "language_model", "lm_head")},
	} {
		on := j.flag(p.key, p.otherwise)
		switch {
		case ok && on:
			out = append(out, p.names...)
		case on != p.otherwise && j.modelType() == "":
			j.doubt(j.get(p.key), "%s: which parts %s has is not known; planned without", p.key, j.named)
		}
	}
	if adapted && ok {
		out = append(out, c.conflict...)
	}
	return out
}

// excluded writes a regular expression of the paths that contain one of the names.
func excluded(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return ".*(" + strings.Join(quoted, "|") + ").*"
}

// patternsOf writes patterns of the paths that contain one of the names; "" if there is none.
func patternsOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	var out []string
	for _, n := range slices.Compact(names) {
		out = append(out, quote("*"+n+"*"))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// freeze keeps modules out of training, if patterns are of any.
func (j *job) freeze(patterns string) {
	if patterns != "" {
		j.put("freeze.modules", patterns, j.get("freeze_vision_tower")).why = "LLaMA-Factory's defaults: freeze_vision_tower and freeze_multi_modal_projector"
	}
}
