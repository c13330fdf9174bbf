package importer

import (
	"slices"
	"strings"
)

// preference is a kind of preference training.
type preference struct {
	name      string
	pairs     bool // its batches have a preferred and a rejected sample of each pair
	reference bool // the model without its adapters is called, too, without gradients
}

// preferences are the kinds of preference training that are planned.
var preferences = []preference{
	{"dpo", true, true}, {"ipo", true, true}, {"kto", false, true}, {"orpo", true, false}, {"simpo", true, false},
}

// prefers plans preference training as supervised training of the same samples, and
// notes what that leaves out; trained are those that have a trainer of their own.
func (j *job) prefers(key, name string, adapter bool, trained ...string) {
	at := j.get(key)
	i := slices.IndexFunc(preferences, func(p preference) bool { return p.name == name })
	if i < 0 {
		var known []string
		for _, p := range preferences {
			known = append(known, p.name)
		}
		j.fail(at, "%s: %s is not modelled; memplan plans %s and, without %s, supervised training", key, name, strings.Join(append(known, trained...), ", "), key)
	}
	p := preferences[i]
	if p.reference && !adapter {
		j.fail(at, "%s: %s without an adapter is not modelled: it has a second model, the reference; memplan plans it with a LoRA adapter", key, name)
	}
	of, reference := "each sample", ""
	if j.pairs = p.pairs; p.pairs {
		of = "both samples of each pair"
	}
	if p.reference {
		reference = " and the forward pass of the reference, the model without its adapters,"
	}
	j.doubt(at, "%s: %s: planned as supervised training on %s; its loss%s may take up to 10 bytes more for each token and each entry of the vocabulary", key, name, of, reference)
}
