package gate

import (
	"context"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/note"
)

// TestCodes: each note is filed under a rule that there is, as heavily as there are
// severities.
func TestCodes(t *testing.T) {
	for _, c := range note.Codes() {
		if c.Rule != "" && LookupRule(c.Rule) == nil {
			t.Errorf("%s: no rule %s", c.Name, c.Rule)
		}
		if c.Most != "" && Severity(c.Most).weight() == 0 {
			t.Errorf("%s: no severity %s", c.Name, c.Most)
		}
	}
}

// TestFiledByCode checks a job whose file has a name like the beginning of another
// warning: what a note is about its words do not say.
func TestFiledByCode(t *testing.T) {
	const text = "memplan: 1\nmodel:\n  hf: 'memory keeps growing: it'\n  with: {seq: 8, n_layer: 1}\ntrain: {precision: fp32}\ndevice: {gpu: t4}\n"
	r, err := Check(context.Background(), &Options{Specs: []string{"a.yaml"}, Config: config(t, ""), Recipe: func(path string) (*estimate.Recipe, error) {
		return &estimate.Recipe{Path: path, Text: []byte(text), ReadFile: func(string) ([]byte, error) {
			return []byte(`{"model_type": "gpt2", "torch_dtype": "bfloat16"}`), nil
		}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	f := r.All()
	if len(f) != 1 || f[0].Rule != estimateWarning.ID || f[0].Code != note.LoadedType.Name || f[0].Severity != Note || f[0].Line != 5 {
		t.Errorf("%+v", f)
	}
}
