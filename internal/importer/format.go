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
	// Defaults are values by which keys that are not modelled ask for nothing.
	Defaults map[string]string
	// Trainer is the trainer of the spec; keys that the format does not know are its
	// arguments if it passes them on.
	Trainer string
	Passes  bool
	// Ignores says that the program ignores keys that it does not know.
	Ignores bool
	// Names are arguments of the trainer that the format has under a name of its own, or
	// under the same one.
	Names map[string]string
	read  func(j *job)
}

// Formats lists the kinds of files, jobs first.
func Formats() []*Format {
	return []*Format{axolotl, llamaFactory, llamaFactoryV1, trl, sftConfig, trainingArguments, accelerate, deepSpeed, axolotlCloud}
}

// is reports whether a file has the signs of the format.
func (f *Format) is(root *spec.Value) bool {
	has := func(key string) bool { return root.Get(key) != nil }
	return slices.ContainsFunc(f.Signs, func(keys []string) bool {
		return !slices.ContainsFunc(keys, func(k string) bool { return !has(k) })
	}) && !slices.ContainsFunc(f.Unless, has)
}

// formatOf says what kind of file a tree is of; nil if of none. The error is of a
// file that has the signs of two.
func formatOf(root *spec.Value) (*Format, error) {
	if root == nil || root.Kind != spec.Map || root.Get("memplan") != nil {
		return nil, nil
	}
	var found []*Format
	for _, f := range Formats() {
		if f.is(root) {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("the file has keys of %s and of %s (%s; %s); remove those of one program",
		found[0].Title, found[1].Title, strings.Join(found[0].Signs[0], ", "), strings.Join(found[1].Signs[0], ", "))
}

// Is reports whether a text is a file that this package reads rather than a spec.
// A file with the signs of two formats is one.
func Is(name string, text []byte) bool {
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
