// Package trainer holds the arguments of the trainers that a spec may name: which there
// are, their defaults by release, and whether they reach memory. A row says of each
// why it does or does not, so that nothing is accepted in silence. The loops
// themselves are specs (specs/trainers).
package trainer

import (
	"slices"
	"strings"
)

// Form is what an argument may be.
type Form uint8

// The forms.
const (
	Int Form = iota
	Number
	Bool
	String
	Strings // a list of strings, or one
	Mapping // a mapping, or a text of JSON
	Any
)

// Reach says what memory an argument reaches.
type Reach uint8

// What an argument reaches.
const (
	Nothing Reach = iota
	Device        // memory of the GPU
	Host          // host memory
	// Unmodelled reaches memory, and the figures are without it.
	Unmodelled
	Numbers // what the optimizer computes, and what the report says of it
)

// String is the word of a reach in lists.
func (r Reach) String() string {
	return [...]string{"nothing", "GPU memory", "host memory", "not modelled", "numbers"}[r]
}

// Argument is one argument of a trainer.
type Argument struct {
	Name    string
	Form    Form
	Default any // int64, float64, bool, string; nil: None
	Choices []string
	Min     int64 // of integers
	Null    bool  // may be null though its default is not
	Reach   Reach
	Why     string
	Old     any    // the default of 4.51, where it is another
	Since   string // "5": 4.51 does not have it
	Until   string // "4.51": 5.12 has it no more
}

// Table is the arguments of a trainer.
type Table struct {
	Name      string // the class that takes them
	Arguments []Argument
}

// Old is the release of transformers before the current one that presets know.
const Old = "4.51"

// Find returns the row of an argument; nil if there is none in a release.
func (t *Table) Find(name, release string) *Argument {
	for i := range t.Arguments {
		if a := &t.Arguments[i]; a.Name == name && a.in(release) {
			return a
		}
	}
	return nil
}

// HasSection reports whether there are arguments name.KEY.
func (t *Table) HasSection(name string) bool {
	return slices.ContainsFunc(t.Arguments, func(a Argument) bool { return strings.HasPrefix(a.Name, name+".") })
}

// Names lists the arguments of a release.
func (t *Table) Names(release string) []string {
	var out []string
	for i := range t.Arguments {
		if a := &t.Arguments[i]; a.in(release) {
			out = append(out, a.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (a *Argument) in(release string) bool {
	if release == Old {
		return a.Since == ""
	}
	return a.Until == ""
}

// DefaultIn is the default of a release.
func (a *Argument) DefaultIn(release string) any {
	if release == Old && a.Old != nil {
		return a.Old
	}
	return a.Default
}

// Named is the table of a trainer, by its key in a spec; nil: it has none.
func Named(key string) *Table {
	switch key {
	case "hf":
		return HF
	case "sft":
		return SFT
	case "dpo":
		return DPO
	case "grpo":
		return GRPO
	case "lightning":
		return Lightning
	case "torchtitan":
		return Torchtitan
	case "megatron":
		return Megatron
	case "litgpt":
		return LitGPT(LitGPTCommands[0])
	}
	return nil
}
