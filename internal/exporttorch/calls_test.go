package exporttorch_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

// TestCalls exports calls whose arguments are lists in the order of torch: each line of
// testdata/calls.txt is an entry, of a layer its inputs, and the call that it means.
func TestCalls(t *testing.T) {
	file := needs.File(t, "calls.txt")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		entry, _, _ := strings.Cut(strings.TrimSpace(line), " => ")
		head, _, _ := strings.Cut(entry, ":")
		seen[head] = true
		call, err := callOf(entry)
		if err != nil {
			t.Errorf("%s: %v", entry, err)
		}
		fmt.Fprintf(&out, "%s => %s\n", entry, call)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(text) {
		t.Errorf("%s has\n%swant\n%s", file, text, out.String())
	}
	for _, name := range layers.Names() {
		positional := false
		for _, p := range layers.Lookup(name).Sigs()[0].Params {
			positional = positional || !p.KwOnly
		}
		if positional && !seen[name] {
			t.Errorf("%s has no call of %s", file, name)
		}
	}
	for _, name := range aten.Names() {
		positional := 0
		for _, p := range aten.Lookup(name).Sig.Params {
			if !p.KwOnly {
				positional++
			}
		}
		if positional > 1 && !seen[name] && aten.Lookup(name).Op.Evidence().Basis != op.Refused {
			t.Errorf("%s has no call of %s", file, name)
		}
	}
}

// callOf is the call that an entry means: of an operator, or of a layer's constructor.
func callOf(entry string) (string, error) {
	call, inputs, isLayer := strings.Cut(entry, " | ")
	if isLayer {
		call += ", inputs: " + inputs
	}
	text := "memplan: 1\nmode: inference\nmodel:\n  inputs: {h: [4, 8], g: [4, 8], m: [4, 8, 8], q: [4, 8, 8, 8], idx: {shape: [4, 8], dtype: int64}, lab: {shape: [], dtype: int64}}\n" +
		"  layers:\n    - {" + call + ", name: r}\n    - {mean: [h], name: out}\n    - {return: [out, r, h, g, m, q, idx, lab]}\ntrain: {batch_size: 2}\n"
	s, err := spec.Parse("calls.yaml", []byte(text), spec.Options{})
	if err != nil {
		return "", err
	}
	env := op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Newest}
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := exporttorch.Write(&b, g.Job, exporttorch.Options{}); err != nil {
		return "", err
	}
	if !isLayer {
		_, rest, _ := strings.Cut(b.String(), " r = ")
		call, _, _ := strings.Cut(rest, "\n")
		return call, nil
	}
	head, _, _ := strings.Cut(entry, ":")
	_, rest, _ := strings.Cut(b.String(), "nn."+head+"(")
	for depth, i := 1, 0; i < len(rest); i++ {
		switch rest[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return "nn." + head + "(" + rest[:i+1], nil
		}
	}
	return "", fmt.Errorf("no nn.%s in\n%s", head, b.String())
}
