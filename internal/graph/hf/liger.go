package hf

import (
	"slices"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
)

// ligerKernels are keywords of Liger's apply_liger_kernel_to_TYPE, with what they are if
// they are not given. A type has one of swiglu and geglu.
var ligerKernels = []struct {
	name  string
	given bool
}{
	{"rope", true},
	{"rms_norm", true},
	{"swiglu", true},
	{"cross_entropy", false},
	{fusedLoss, true},
}

// fusedLoss is the kernel with which training has no logits.
const fusedLoss = "fused_linear_cross_entropy"

// ligerTypes are the types whose presets have the param liger.
var ligerTypes = []string{"gemma", "gemma2", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"}

// geglu are the types whose feed-forward layers Liger calls so.
var geglu = []string{"gemma", "gemma2"}

// liger is the value of the param liger: the names of the kernels that model.liger or a
// trainer's use_liger_kernel asks for.
func (h *model) liger() []any {
	v := h.m.Liger
	if a := h.Spec.Trainer.Args(); v == nil && a != nil && a.Table != nil && a.Bool("use_liger_kernel") {
		if !slices.Contains(ligerTypes, h.c.Type) { // Trainer only warns of types without kernels
			h.NotModelled = append(h.NotModelled, note.Asked.New("use_liger_kernel: Liger's kernels for %s; the figures are those of transformers' own", h.c.Type))
			return nil
		}
		config, _ := a.Value("liger_kernel_config").(*spec.Value)
		return h.ligerNames(config)
	}
	switch {
	case v == nil || v.Kind == spec.Bool && !v.Bool:
		return nil
	case !slices.Contains(ligerTypes, h.c.Type):
		h.fail(v.Span, "liger: Liger's kernels for %s are not modelled; modelled are those for %s", h.c.Type, list(ligerTypes))
	case v.Kind == spec.Bool:
		return h.ligerNames(nil)
	case v.Kind != spec.Map:
		h.fail(v.Span, "liger must be true, false or a mapping such as {rope: false}, not %s", v.Describe())
	}
	return h.ligerNames(v)
}

// ligerNames are the kernels that keywords of apply_liger_kernel_to_TYPE choose; nil: its
// defaults.
func (h *model) ligerNames(v *spec.Value) []any {
	given := map[string]bool{}
	if v != nil {
		var known []string
		for _, k := range ligerKernels {
			known = append(known, h.ligerName(k.name))
		}
		for _, p := range v.Pairs {
			name := h.ligerName(p.Key.Str)
			if !slices.Contains(known, name) {
				h.Spec.Errs.Unknown(p.Key.Span, "kernel of Liger for "+h.c.Type, p.Key.Str, known)
				panic(spec.Stop{})
			}
			if p.Value.Kind != spec.Bool {
				h.fail(p.Value.Span, "liger: %s must be true or false, not %s", p.Key.Str, p.Value.Describe())
			}
			given[name] = p.Value.Bool
		}
	}
	var out []any
	for _, k := range ligerKernels {
		name := h.ligerName(k.name)
		on, said := given[name]
		if !said {
			on = k.given
		}
		if on {
			out = append(out, name)
		}
	}
	both := slices.Contains(out, any("cross_entropy")) && slices.Contains(out, any(fusedLoss))
	switch {
	case both && given["cross_entropy"] && !given[fusedLoss]:
		h.fail(v.Span, "liger: cross_entropy and fused_linear_cross_entropy cannot both be true; add fused_linear_cross_entropy: false")
	case both:
		h.fail(v.Span, "liger: cross_entropy and fused_linear_cross_entropy cannot both be true")
	}
	return out
}

func (h *model) ligerName(name string) string {
	if name == "swiglu" && slices.Contains(geglu, h.c.Type) {
		return "geglu"
	}
	return name
}
