package hf

import (
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// TestBlockNames has the blocks of shared files found by their lines as they are read.
func TestBlockNames(t *testing.T) {
	for _, name := range shared {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(name, text, spec.Options{Own: true})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, b := range s.Model.Blocks {
			want = append(want, b.Name.V)
		}
		if got := blockNames(text); !slices.Equal(got, want) {
			t.Errorf("%s has the blocks\n%q, found are\n%q", name, want, got)
		}
	}
}

// TestNeeded has those shared files left unread that a preset does not need.
func TestNeeded(t *testing.T) {
	texts := make([][]byte, len(shared))
	for i, name := range shared {
		texts[i], _ = specs.Preset(name)
	}
	for preset, want := range map[string]string{
		"hf/llama": "hf/common hf/heads hf/flash hf/liger hf/cce",
		"hf/bert":  "hf/common hf/flash hf/liger",
		"hf/vit":   "hf/common hf/heads hf/flash hf/liger",
	} {
		text, err := specs.Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(preset, text, spec.Options{Own: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, needed := range needed(texts, []*spec.Spec{s}) {
			if needed {
				got = append(got, shared[i])
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s needs %q, want %s", preset, got, want)
		}
	}
	for text, want := range map[string]bool{
		"{SwiGLU: }": true, "{call: x}": false, `"${of}GLU"`: true, `"${of}LU"`: true, `"${of}Lu"`: false, `"Swi${kind}"`: true, `"swi${kind}"`: false,
	} {
		m := mentions{}
		m.add([]string{text})
		if got := m.of("SwiGLU"); got != want {
			t.Errorf("%s names SwiGLU: %v, want %v", text, got, want)
		}
	}
}
