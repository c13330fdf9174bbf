package exporttorch

import (
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
)

// masks is a function of the script that masks weights.
const masks = `

def mask_weights(model, kinds, modules, excluded, amount):
    """Masks the weights of layers: each becomes weight_mask * weight_orig before every forward."""
    def fits(patterns, path):
        return any(fnmatch.fnmatchcase(path, p) for p in patterns)

    for path, layer in model.named_modules():
        if type(layer) in kinds and fits(modules, path) and not fits(excluded, path):
            prune.l1_unstructured(layer, "weight", amount=amount)
`

// prunes reports whether a model's weights are masked.
func prunes(j *program.Job) bool {
	for _, m := range j.Models {
		if m.Pruned != nil {
			return true
		}
	}
	return false
}

// pruning prints what masks the weights of a model, before it is moved.
func (s *script) pruning(m *program.Model) {
	var kinds []string
	seen := map[*nn.Layer]bool{}
	for _, l := range m.Pruned.Layers {
		if kind := l.Class.Layer; !seen[kind] {
			seen[kind] = true
			kinds = append(kinds, kind.Python)
		}
	}
	s.printf("mask_weights(%s, [%s], %s, %s, amount=%s)", s.modelName(m.Name), strings.Join(kinds, ", "), s.patterns(m.Pruned.Modules, m), s.patterns(m.Pruned.Except, m), program.Literal(m.Pruned.Amount))
}
