package importer

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trainer"
)

// effect is what a key of a file does.
type effect uint8

const (
	sets  effect = iota // a key of the spec
	reads               // decides several keys of the spec, by code of the format
	none                // nothing that reaches memory
	asks                // for something that is not modelled: a doubt in the report
)

// Key is a row of a format's table.
type Key struct {
	Name   string
	effect effect
	// text is the key of the spec, what is decided, why there is no effect, or what
	// is not modelled.
	text string
}

// table makes the rows of one effect and text; the names are in one string.
func table(e effect, text, names string) []Key {
	var out []Key
	for _, n := range strings.Fields(names) {
		out = append(out, Key{n, e, text})
	}
	return out
}

// same are rows of keys that have the same name below a key of the spec.
func same(below, names string) []Key {
	var out []Key
	for _, n := range strings.Fields(names) {
		out = append(out, Key{n, sets, below + "." + n})
	}
	return out
}

// lookup finds the row of a key.
func (f *Format) lookup(name string) *Key {
	if i := slices.IndexFunc(f.Keys, func(k Key) bool { return k.Name == name }); i >= 0 {
		return &f.Keys[i]
	}
	return nil
}

// names lists the keys of a format.
func (f *Format) names() []string {
	out := make([]string, len(f.Keys))
	for i, k := range f.Keys {
		out[i] = k.Name
	}
	if f.Passes {
		out = append(out, f.arguments().Names("")...)
	}
	return out
}

// arguments are those of the trainer.
func (f *Format) arguments() *trainer.Table {
	switch f.Trainer {
	case "sft":
		return trainer.SFT
	case "dpo":
		return trainer.DPO
	case "grpo":
		return trainer.GRPO
	}
	return trainer.HF
}

// passes reports whether a key is an argument that the format passes on to the trainer.
func (f *Format) passes(name string) bool {
	return f.Passes && (f.arguments().Find(name, "") != nil || f.arguments().Find(name, trainer.Old) != nil)
}

// given reports whether a value asks for something: null, false, zero, "no" and what
// is empty do not.
func given(v *spec.Value) bool {
	if v == nil {
		return false
	}
	switch v.Kind {
	case spec.Null:
		return false
	case spec.Bool:
		return v.Bool
	case spec.Int:
		return v.Int != 0
	case spec.Float:
		return v.Float != 0
	case spec.Str:
		on, isBool := word(v.Str)
		return v.Str != "" && v.Str != "none" && (!isBool || on)
	case spec.List:
		return len(v.Items) > 0
	}
	return len(v.Pairs) > 0
}

// word reads the booleans of YAML 1.1, in which these programs read their files.
func word(s string) (on, isBool bool) {
	switch strings.ToLower(s) {
	case "yes", "on", "true":
		return true, true
	case "no", "off", "false":
		return false, true
	}
	return false, false
}
