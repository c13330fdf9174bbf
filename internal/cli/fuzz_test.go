package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/spec/spectest"
	"github.com/memplan/memplan/specs"
)

// hfSeed is a config.json of a type, with values of every kind.
func hfSeed(name string) []byte {
	return fmt.Appendf(nil, `{"model_type": %q, "architectures": ["XForSequenceClassification"], "num_hidden_layers": 1, "hidden_size": 16, "n_layer": 1, "n_embd": 16, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
 "tie_word_embeddings": true, "pad_token_id": null, "id2label": {"0": "a", "1": "b"}, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "text_config": {"hidden_size": 16}, "vision_config": {"image_size": 32},
 "torch_dtype": "float16", "depths": [1, 1], "quantization_config": {"quant_method": "gptq"}, "attn_config": {"attn_pdrop": 0.1}}`, name)
}

// Of any config.json there is a spec that can be read, or an error.
func FuzzHF(f *testing.F) {
	var seeds [][]byte
	for _, name := range specs.HFTypes() {
		seeds = append(seeds, hfSeed(name))
	}
	seeds = append(seeds, []byte(`{"model_type": []}`), []byte(`{"model_type": "gpt2", "n_layer": "1\n- x: ${y}"}`), []byte(`{"model_type": "gpt2", "n_layer": [[1, null], {"a": 1}]}`))
	mutator := spectest.New(seeds)
	for i, text := range seeds {
		f.Add(text)
		for seed := range uint64(3) {
			changed, err := mutator.JSON(spectest.Source(100*uint64(i)+seed), text)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(changed)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !isHFConfig(text) {
			return
		}
		const path = "${x}/config.json"
		out, _, err := wrapHF(path, text)
		if err != nil {
			return
		}
		s, err := spec.Parse(path, out, spec.Options{})
		if err != nil && strings.Contains(err.Error(), "control character") {
			return
		}
		if s == nil || err != nil {
			t.Fatalf("%v\nof\n%s", err, text)
		}
		if s.Model == nil || s.Model.HF.V != path || s.Name.V != "${x}" {
			t.Errorf("a configuration changes what the spec says:\n%s", out)
		}
	})
}

// No report makes diff panic, whichever side it is on.
func FuzzReport(f *testing.F) {
	needs.Time(f, needs.Alone)
	texts := [][]byte{[]byte("memplan: 1\nmodel: {preset: lenet}\n"), []byte("memplan: 1\nmodel: {preset: mlp}\ntrain: {batch_size: 64, optimizer: AdamW, steps: 2}\ndata: {loader: {num_workers: 2}}\ndevice: {gpu: t4, memory: 600MiB}\n")}
	var seeds [][]byte
	var own *report.Report
	for _, text := range texts {
		r := &estimate.Recipe{Path: "a.yaml", Text: text}
		j, err := r.Job()
		if err != nil {
			f.Fatal(err)
		}
		o, err := estimate.Run(j)
		if err != nil {
			f.Fatal(err)
		}
		own = o.Report()
		var b bytes.Buffer
		if err := report.JSON(&b, own); err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, b.Bytes())
		f.Add(b.Bytes())
	}
	f.Add([]byte(`{"memplan_report": 1}`))
	f.Add([]byte(`{"memplan_report": 1, "layers": [null, {}], "steps": null, "advice": {}}`))
	mutator := spectest.New(seeds)
	for seed := range uint64(300) {
		changed, err := mutator.JSON(spectest.Source(seed), seeds[seed%2])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !isReport(text) {
			return
		}
		r, err := readReport("a.json", text)
		if err != nil {
			if !errors.As(err, new(*usageError)) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		for _, sides := range [][2]*report.Report{{r, r}, {r, own}, {own, r}} {
			d := report.Compare(sides[0], sides[1])
			if sides[0] == sides[1] && !d.Equal {
				t.Error("a report differs from itself")
			}
			for _, f := range report.DiffFormats.All() {
				if err := f.Write(io.Discard, d, report.DiffOptions{All: true, Top: 5}); err != nil {
					t.Errorf("%s: %v", f.Name, err)
				}
			}
		}
	})
}
