package gate

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
)

// specForms are files that estimate takes for specs: the key memplan stands at
// the top, however it is written.
var specForms = map[string]string{
	"plain":          "memplan: 1\nmodel: {preset: mlp}\n",
	"comment first":  "# a spec\n\nmemplan: 1\nmodel: {preset: mlp}\n",
	"not first":      "model: {preset: mlp}\nmemplan: 1\n",
	"indented":       "  memplan: 1\n  model: {preset: mlp}\n",
	"indented late":  "  model:\n    preset: mlp\n  memplan: 1\n",
	"flow":           "{memplan: 1, model: {preset: mlp}}\n",
	"flow, late":     "{model: {preset: mlp}, train: {batch_size: 2}, memplan: 1}\n",
	"flow, lines":    "{\n  model: {preset: mlp},\n  \"memplan\": 1\n}\n",
	"JSON":           "{\"model\": {\"preset\": \"mlp\"}, \"memplan\": 1}\n",
	"question mark":  "? memplan\n: 1\n? model\n: {preset: mlp}\n",
	"quoted":         "\"memplan\" : 1\nmodel: {preset: mlp}\n",
	"single quotes":  "'memplan': 1\nmodel: {preset: mlp}\n",
	"escaped":        "\"\\x6demplan\": 1\nmodel: {preset: mlp}\n",
	"all escaped":    "\"\\u006d\\u0065\\u006d\\u0070\\u006c\\u0061\\u006e\": 1\nmodel: {preset: mlp}\n",
	"folded":         "? \"mem\\\n  plan\"\n: 1\nmodel: {preset: mlp}\n",
	"anchor":         "&a memplan: &v 1\nmodel: {preset: mlp}\n",
	"document mark":  "---\nmemplan: 1\nmodel: {preset: mlp}\n",
	"tag":            "!!map\nmemplan: 1\nmodel: {preset: mlp}\n",
	"tagged key":     "!!str memplan: 1\nmodel: {preset: mlp}\n",
	"byte order":     "\ufeffmemplan: 1\nmodel: {preset: mlp}\n",
	"Windows":        "memplan: 1\r\nmodel: {preset: mlp}\r\n",
	"end of file":    "{model: {preset: mlp}, memplan: 1}",
	"mistakes in it": "memplan: 1\nmodle: {preset: mlp}\n",
	"not YAML":       "memplan: 1\nmodel: {preset: mlp\n",
	"two documents":  "memplan: 1\nmodel: {preset: mlp}\n---\na: 1\n",
}

func TestSpecForms(t *testing.T) {
	for name, text := range specForms {
		if !IsSpec([]byte(text)) {
			t.Errorf("%s is not found", name)
		}
		s, err := spec.Parse("x.yaml", []byte(strings.TrimPrefix(text, "\ufeff")), spec.Options{})
		if wrong := name == "not YAML" || name == "mistakes in it" || name == "two documents" || name == "tagged key"; (s == nil || err != nil) != wrong {
			t.Errorf("%s: estimate says %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"other":          "image: x\n",
		"a value":        "name: memplan\n",
		"deeper":         "jobs:\n  memplan: 1\n",
		"text":           "run: |\n  memplan: 1\n",
		"our own report": "{\n  \"memplan_report\": 1,\n  \"memplan\": \"v1\"\n}\n",
		"not YAML":       "a: {{ .Values.memplan }}\nb: [\n",
		"list":           "- memplan: 1\n",
		"empty":          "",
		"escapes":        "a: \"\\x41\"\n",
	} {
		if IsSpec([]byte(text)) {
			t.Errorf("%s is taken for a spec", name)
		}
	}
}

// TestFindForms finds in a folder every spec that estimate takes.
func TestFindForms(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for name, text := range specForms {
		ext := []string{".yaml", ".yml", ".YAML"}[len(want)%3]
		path := filepath.Join(dir, "deep", name+ext)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		want = append(want, path)
	}
	slices.Sort(want)
	c, err := ParseConfig("", dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Find([]string{dir}, false, func(string) bool { return false })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%v\n%v", err, got, want)
	}
}

// TestFindLinksOut lists a link out of the project without reading it, be what it
// leads to a spec or not; other links are read.
func TestFindLinksOut(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(out, "other"): "image: x\n", filepath.Join(dir, "inside"): "image: x\n", filepath.Join(dir, "spec"): "memplan: 1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"out.yaml": filepath.Join(out, "other"), "in.yaml": "inside", "spec.yaml": "spec", ".hidden.yaml": filepath.Join(out, "other")} {
		needs.Symlink(t, to, filepath.Join(dir, name))
	}
	c, err := ParseConfig("", dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Outside = func(path string) bool { return filepath.Base(path) == "out.yaml" }
	got, err := c.Find([]string{dir}, false, func(string) bool { return false })
	if want := []string{filepath.Join(dir, "out.yaml"), filepath.Join(dir, "spec.yaml")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRenames(t *testing.T) {
	text := func(s string) []byte { return []byte("memplan: 1\n" + s) }
	a, grown := text("model: {preset: mlp}\ntrain: {batch_size: 2}\ndevice: {gpu: t4}\n"), text("# x\nmodel: {preset: mlp}\ntrain: {batch_size: 9}\ndevice: {gpu: t4}\n")
	other := text("model: {preset: gpt}\ntrain: {batch_size: 7}\ndevice: {gpu: t4}\n")
	for _, c := range []struct {
		gone, added [][]byte
		want        map[int]int
	}{
		{[][]byte{a}, [][]byte{grown}, map[int]int{0: 0}},
		{[][]byte{other, a}, [][]byte{grown}, map[int]int{0: 1}},
		{[][]byte{a}, [][]byte{grown, a}, map[int]int{1: 0}}, // the likest, and no spec twice
		{[][]byte{a}, [][]byte{other}, map[int]int{}},        // the GPU alone makes none alike
		{[][]byte{text("")}, [][]byte{text("")}, map[int]int{0: 0}},
		{nil, [][]byte{a}, map[int]int{}},
		{[][]byte{a}, [][]byte{nil}, map[int]int{}}, // cannot be read
	} {
		if got := Renames(c.gone, c.added); !maps.Equal(got, c.want) {
			t.Errorf("%q %q: %v, want %v", c.gone, c.added, got, c.want)
		}
	}
}
