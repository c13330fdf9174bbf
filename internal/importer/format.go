package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// Format is a kind of file.
type Format struct {
	Name  string // "axolotl"
	Title string // "Axolotl's YAML"
	// Signs are groups of keys; a file that has all keys of a group is of the format.
	// Unless are keys that such a file does not have.
	Signs  [][]string
	Unless []string
	// Beside says that the file is no job, but comes with the file of one.
	Beside bool
	Keys   []Key
	// Defaults are values by which keys that are not modelled ask for nothing; several have
	// spaces between them.
	Defaults map[string]string
	// Trainer is the trainer of the spec; keys that the format does not know are its
	// arguments if it passes them on.
	Trainer string
	Passes  bool
	// Coerces says that the program takes strings for numbers: its keys have pydantic's types.
	Coerces bool
	// Ignores says that the program ignores keys that it does not know.
	Ignores bool
	// Names are arguments of the trainer that the format has under a name of its own, or
	// under the same one.
	Names map[string]string
	read  func(j *job)
	// other stops at files that are for other programs of the same project, whose keys the
	// table does not have; nil: there are none.
	other func(j *job)
}

// Formats lists the kinds of files, jobs first.
func Formats() []*Format {
	return []*Format{axolotl, llamaFactory, llamaFactoryV1, trl, trlGRPO, sftConfig, trainingArguments, megatron, accelerate, deepSpeed, axolotlCloud}
}

// signs are the keys by which a file is of the format, and one that such files do not
// have; nil and "" if it has none.
func (f *Format) signs(root *spec.Value) (signs []string, other string) {
	has := func(key string) bool { return root.Get(key) != nil }
	for _, keys := range f.Signs {
		if signs == nil && !slices.ContainsFunc(keys, func(k string) bool { return !has(k) }) {
			signs = keys
		}
	}
	if i := slices.IndexFunc(f.Unless, has); i >= 0 {
		other = f.Unless[i]
	}
	return signs, other
}

// formatOf says what kind of file a tree is of; nil if of none. The error is of a
// file that has keys of two, or none of those by which a file is recognized.
func formatOf(root *spec.Value) (*Format, error) {
	if root == nil || root.Kind != spec.Map || root.Get("memplan") != nil {
		return nil, nil
	}
	type found struct {
		*Format
		signs []string
		other string
	}
	var clear, mixed []found
	for _, f := range Formats() {
		switch signs, other := f.signs(root); {
		case signs == nil:
		case other == "":
			clear = append(clear, found{f, signs, other})
		default:
			mixed = append(mixed, found{f, signs, other})
		}
	}
	switch {
	case len(clear) == 1:
		return clear[0].Format, nil
	case len(clear) > 1:
		return nil, fmt.Errorf("the file has keys of %s and of %s (%s; %s); remove those of one program",
			clear[0].Title, clear[1].Title, strings.Join(clear[0].signs, ", "), strings.Join(clear[1].signs, ", "))
	case len(mixed) > 0:
		f := mixed[0]
		return nil, fmt.Errorf("the file has %s, as files of %s do, and %s, which they do not have; remove the keys of one program", strings.Join(f.signs, ", "), f.Title, f.other)
	}
	return nil, unsigned(root)
}

// unsigned is the error of a file that is no spec and has at least two keys of a format,
// but none by which a file of it is recognized; nil for other files.
func unsigned(root *spec.Value) error {
	var (
		most *Format
		keys []string
	)
	for _, f := range Formats() {
		var has []string
		for _, p := range root.Pairs {
			if k := f.lookup(p.Key.Str); k != nil {
				has = append(has, k.Name)
			}
		}
		if len(has) > len(keys) {
			most, keys = f, has
		}
	}
	if len(keys) < 2 || root.Get("model") != nil || root.Get("models") != nil {
		return nil
	}
	var by []string
	for _, signs := range most.Signs[:min(3, len(most.Signs))] {
		by = append(by, strings.Join(signs, " and "))
	}
	return fmt.Errorf("the file has keys of %s (%s), but not %s, by which such a file is recognized", most.Title, strings.Join(keys[:min(3, len(keys))], ", "), strings.Join(by, ", or "))
}

// Is reports whether a text is a file that this package reads rather than a spec.
// A file with the signs of two formats is one.
func Is(name string, text []byte) bool {
	if isMegatronScript(text) {
		return true
	}
	f, err := formatOf(spec.ReadPlain(name, text, nil).Root)
	return f != nil || err != nil
}

// SignsOf lists what files are recognized by, for messages.
func SignsOf() string {
	var out []string
	for _, f := range Formats() {
		out = append(out, fmt.Sprintf("%s has %s", f.Title, strings.Join(f.Signs[0], " and ")))
	}
	return strings.Join(out, "; ")
}
