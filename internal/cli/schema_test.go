package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/specs"
)

// TestSchema checks that the schema is one, that it accepts every preset and
// every right spec of the tests, and that it refuses what editors should mark.
func TestSchema(t *testing.T) {
	out, errs, code := run(t, "memplan schema", ".")
	if code != 0 {
		t.Fatal(errs)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(out)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("memplan.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("memplan.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	names := append(specs.Names(), "hf/common", "hf/heads")
	for _, t := range specs.HFTypes() {
		names = append(names, "hf/"+t)
	}
	for _, n := range names {
		text, err := specs.Preset(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(string(text)); err != nil {
			t.Errorf("preset %s: %.600s", n, err.Error())
		}
	}
	files, err := filepath.Glob(needs.File(t, "ok", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no right specs", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(string(text)); err != nil {
			t.Errorf("%s: %.600s", f, err.Error())
		}
	}
	for _, wrong := range []string{
		"memplan: 1\nmodle: {}",
		"model: {}",
		"memplan: 1\ntrain: {batch_size: 0}",
		"memplan: 1\ntrain: {precision: fp8}",
		"memplan: 1\ntrain: {optimizer: {AdamW: {learning_rate: 1}}}",
		"memplan: 1\nmodel: {layers: [{Conv2d: {out_channel: 3}}]}",
		"memplan: 1\nmodel: {layers: [Linaer]}",
		"memplan: 1\nmodel: {layers: [{Linear: {bias: 3}}]}",
		"memplan: 1\nmodel: {blocks: {b: {kind: procedure}}}",
	} {
		if validate(wrong) == nil {
			t.Errorf("accepted: %s", wrong)
		}
	}
}
