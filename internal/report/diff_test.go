package report

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

func layer(path, kind string, params, acts int64) Layer {
	return Layer{Layer: path, Kind: kind, Count: 1, ParametersBytes: tensor.Bytes(params), ActivationsBytes: tensor.Bytes(acts), TotalBytes: tensor.Bytes(params + acts)}
}

// Layers are paired by path, then by what they hold; what is left is in one
// side alone.
func TestCompareLayers(t *testing.T) {
	a, b := &Report{}, &Report{}
	a.Layers = []Layer{layer("fc1", "Linear", 100, 10), layer("fc2", "Linear", 50, 5), layer("act", "ReLU", 0, 7), layer("old", "Conv2d", 9, 9)}
	b.Layers = []Layer{layer("fc1", "Linear", 100, 20), layer("head", "Linear", 50, 5), layer("act", "GELU", 0, 7), layer("new", "Conv2d", 8, 9)}
	d := Compare(a, b)
	if d.Equal || len(d.Renamed) != 1 || d.Renamed[0] != (DiffText{"Linear", "fc2", "head"}) {
		t.Errorf("renamed: %+v", d.Renamed)
	}
	var got []string
	for _, l := range d.Layers {
		got = append(got, l.Layer+" "+l.In)
	}
	if s := strings.Join(got, ", "); s != "old a, new b, fc1 both" {
		t.Errorf("%s", s)
	}
	if p := d.Layers[2].Parts; len(p) != 1 || p[0].Name != "activations_bytes" || p[0].Delta != 10 || *p[0].Percent != 100 {
		t.Errorf("%+v", p)
	}
	b = &Report{Layers: a.Layers, Phases: []Phase{{Phase: "eval", PeakAllocatedBytes: 5}}}
	if d := Compare(a, b); d.Equal || len(d.Phases) != 1 || d.Phases[0].Delta != 5 || len(d.Layers) != 0 {
		t.Errorf("%+v", d)
	}
	if d := Compare(a, a); !d.Equal || len(d.Layers)+len(d.Renamed)+len(d.Settings) != 0 {
		t.Errorf("%+v", d)
	}
}

// Names of AtPeak's sizes are those of the report's JSON.
func TestCompareNames(t *testing.T) {
	var b strings.Builder
	if err := JSON(&b, &Report{Host: &Host{}}); err != nil {
		t.Fatal(err)
	}
	d := Compare(&Report{Host: &Host{}}, &Report{Host: &Host{}})
	for _, list := range [][]DiffBytes{d.Peak, d.AtPeak, d.Totals, d.Host} {
		if len(list) == 0 {
			t.Error("an empty section")
		}
		for _, x := range list {
			if !strings.Contains(b.String(), `"`+x.Name+`":`) {
				t.Errorf("the report has no %s", x.Name)
			}
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"blocks.0 ü": "blocks.0 ü", "a\x1b[31mb\n": `a\u001b[31mb\u000a`, "x\u202ey": `x\u202ey`} {
		if got := printable.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMarkdownTable(t *testing.T) {
	tab := &Table{Header: []string{"a|b", "n"}, Numbers: []bool{false, true}, Rows: [][]string{{"x*\x1b", "1"}, {"y"}}}
	var b strings.Builder
	if err := tab.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	if want := "| a\\|b | n |\n| --- | ---: |\n| x\\*\\\\u001b | 1 |\n| y |  |\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}

// TestWideSettings: what is too wide for a terminal's table is above it.
func TestWideSettings(t *testing.T) {
	a, b := &Report{Train: Train{Optimizer: "SGD", Precision: "fp32"}}, &Report{Train: Train{Optimizer: strings.Repeat("AdamW ", 20), Precision: "bf16"}}
	for format, want := range map[string]string{
		"text":     "\n  optimizer\n    A  SGD\n    B  AdamW AdamW ",
		"markdown": "| optimizer | SGD | AdamW AdamW ",
	} {
		var out strings.Builder
		if err := DiffFormats.Lookup(format).Write(&out, Compare(a, b), DiffOptions{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nhas no %q", out.String(), want)
		}
		for line := range strings.Lines(out.String()) {
			if format == "text" && strings.Contains(line, "precision") && len(line) > 100 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	}
}
