// Package specs holds the model specs that come with memplan: presets, which
// other specs may use by name.
package specs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.yaml hf/*.yaml megatron/*.yaml trainers/*.yaml
var files embed.FS

// Default is the preset that memplan estimates when none is named: GPT-2 124M.
const Default = "gpt2"

// Names lists the presets, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the embedded folder is always readable
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	return names
}

// HFTypes lists the model types of Hugging Face's transformers that there are
// presets for, sorted: the preset of a type is hf/TYPE.
func HFTypes() []string {
	entries, err := files.ReadDir("hf")
	if err != nil {
		panic(err) // the embedded folder is always readable
	}
	var types []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".yaml"); !slices.Contains([]string{"common", "heads", "vision", "mixers", "flash", "kernels", "liger", "cce", "prompts", "prefix"}, name) {
			types = append(types, name)
		}
	}
	return types
}

// Preset returns the text of a preset.
func Preset(name string) ([]byte, error) {
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("unknown preset %q", name)
	}
	return text, nil
}

// Doc returns what a preset says of itself: the first sentence of its comment.
func Doc(text []byte) string {
	var words []string
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			words = append(words, rest)
		} else if len(words) > 0 {
			break
		}
	}
	first, _, _ := strings.Cut(strings.Join(words, " "), ". ")
	return strings.TrimSuffix(first, ".")
}
