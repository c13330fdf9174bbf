// Package specs holds the model specs that come with memplan: presets, which
// other specs may use by name.
package specs

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.yaml
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
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Preset returns the text of a preset.
func Preset(name string) ([]byte, error) {
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("unknown preset %q", name)
	}
	return text, nil
}
