package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
)

// checkTexts checks specs that are given by their texts.
func checkTexts(ctx context.Context, t *testing.T, conf string, texts map[string]string, paths ...string) (*Result, error) {
	t.Helper()
	return Check(ctx, &Options{Specs: paths, Config: config(t, conf), Recipe: func(path string) (*estimate.Recipe, error) {
		return &estimate.Recipe{Path: path, Text: []byte(texts[path])}, nil
	}})
}

// What is printed does not depend on which core is done first.
func TestOrder(t *testing.T) {
	all := originals(t)
	texts := map[string]string{}
	var paths []string
	for i := range 12 {
		o := &all[i%len(all)]
		path := fmt.Sprintf("%02d.yaml", i)
		texts[path] = o.text
		paths = append(paths, path)
	}
	var first []byte
	for range 3 {
		r, err := checkTexts(context.Background(), t, "devices: [t4]\noverrides: [{specs: '0*', devices: [t4, a100-40gb]}]", texts, paths...)
		if err != nil {
			t.Fatal(err)
		}
		text := render(t, "json", r)
		if first == nil {
			first = text
		} else if !bytes.Equal(text, first) {
			t.Fatal("two checks of the same specs differ")
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := checkTexts(ctx, t, "", map[string]string{"a.yaml": "memplan: 1\nmodel: {preset: mlp}\n"}, "a.yaml"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A panic over one spec, wherever it comes, is a finding of that spec: the others
// are checked, and every report is written.
func TestPanics(t *testing.T) {
	const good, hf = "memplan: 1\nmodel: {preset: mlp}\n", "memplan: 1\nmodel: {hf: config.json}\n"
	boom := func(string) ([]byte, error) { panic("boom\nin two lines") }
	o := &Options{Specs: []string{"a.yaml", "before.yaml", "read.yaml", "play.yaml", "z.yaml"}, Config: config(t, "devices: [t4]\nrules: {MP010: off}"), Against: "main"}
	o.Recipe = func(path string) (*estimate.Recipe, error) {
		switch path {
		case "read.yaml":
			panic("boom\nin two lines")
		case "play.yaml":
			return &estimate.Recipe{Path: path, Text: []byte(hf), ReadFile: boom}, nil
		}
		return &estimate.Recipe{Path: path, Text: []byte(good)}, nil
	}
	o.Before = func(path string, _ []byte) (*estimate.Recipe, error) {
		if path == "before.yaml" {
			panic("boom\nin two lines")
		}
		return nil, nil
	}
	r, err := Check(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Specs {
		if s.Spec == "a.yaml" || s.Spec == "z.yaml" {
			if s.Result != "FITS" || s.Panic != nil {
				t.Errorf("%s: %+v", s.Spec, s)
			}
			continue
		}
		if s.Fits != nil || s.Panic == nil || len(s.Findings) != 1 {
			t.Errorf("%s: %+v", s.Spec, s)
			continue
		}
		const want = "internal error in internal/gate/run_test.go:"
		f := s.Findings[0]
		if f.Rule != "MP015" || f.Severity != Error || !strings.HasPrefix(f.Message, want) || !strings.HasSuffix(f.Message, ": boom; in two lines; this is a bug in memplan, please report it") {
			t.Errorf("%s: %+v", s.Spec, f)
		}
	}
	if !r.Failed || r.Unfinished != 3 || r.Unread != 3 {
		t.Errorf("failed %v, %d unfinished, %d unread", r.Failed, r.Unfinished, r.Unread)
	}
	for _, f := range Formats.All() {
		if text := string(render(t, f.Name, r)); strings.Contains(text, "goroutine") || !strings.Contains(text, "internal error in internal/gate/run") {
			t.Errorf("%s:\n%s", f.Name, text)
		}
	}
}

// Which GPUs a spec is checked on.
func TestDevices(t *testing.T) {
	texts := map[string]string{
		"none.yaml":  "memplan: 1\nmodel: {preset: mlp}\n",
		"own.yaml":   "memplan: 1\nmodel: {preset: mlp}\ndevice: {gpu: a100-40gb, memory: 20GiB}\n",
		"arch.yaml":  "memplan: 1\nmodel: {preset: mlp}\ndevice: {memory: 20GiB, arch: sm_80, sms: 60}\n",
		"wrong.yaml": "memplan: 1\nmodel: {preset: mpl}\n",
	}
	for _, c := range []struct{ conf, spec, want string }{
		{"", "none.yaml", "a100-40gb 39.01 GiB"},
		{"devices: [t4, rtx-4090]", "none.yaml", "t4 14.43 GiB, rtx-4090 23.06 GiB"},
		{"devices: [t4, rtx-4090]", "own.yaml", "a100-40gb 19.51 GiB"},
		{"devices: [t4, rtx-4090]", "arch.yaml", "custom 19.71 GiB"},
		{"overrides: [{specs: '*', devices: [t4, rtx-4090]}]", "own.yaml", "t4 14.43 GiB, rtx-4090 23.06 GiB"},
		{"overrides: [{specs: '*', devices: [t4]}]", "arch.yaml", "t4 14.43 GiB"},
		{"devices: [t4, rtx-4090]", "wrong.yaml", " 0 B"}, // it comes once
	} {
		r, err := checkTexts(context.Background(), t, c.conf, texts, c.spec)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range r.Specs {
			got = append(got, fmt.Sprintf("%s %v", s.GPU, s.UsableBytes))
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s, %s: %s, want %s", c.conf, c.spec, g, c.want)
		}
	}
}

// A job that fits only by giving memory back, one that wastes it, and one whose
// convolutions may not find their workspaces.
func TestFigures(t *testing.T) {
	tightly := func(memory string) string {
		return "memplan: 1\nmodel: {preset: resnet}\ntrain:\n  batch_size: 64\n  optimizer: SGD\ndevice: {gpu: t4, memory: " + memory + ", context: 0}\n"
	}
	found := map[*Rule]bool{}
	for _, memory := range []string{"1000MiB", "1900MiB", "1950MiB", "2000MiB", "2050MiB", "2100MiB", "2150MiB", "2200MiB", "2300MiB"} {
		r, err := checkTexts(context.Background(), t, "max_fragmentation: 1%", map[string]string{"a.yaml": tightly(memory)}, "a.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range Rules() {
			if has(r, rule) {
				found[rule] = true
			}
		}
		if has(r, predictedOOM) && has(r, tight) {
			t.Errorf("%s: both out of memory and tight", memory)
		}
		for _, f := range r.All() {
			if f.Rule != notModelled.ID && f.Line != 4 && f.Line != 6 {
				t.Errorf("%s at line %d", f.Rule, f.Line)
			}
		}
	}
	for _, rule := range []*Rule{predictedOOM, fragmentation, tight, uncertain} {
		if !found[rule] {
			t.Errorf("%s was never found", rule.Name)
		}
	}
}

// The table of rules: identifiers in order, names and texts that can be shown.
func TestRules(t *testing.T) {
	for i, r := range Rules() {
		if want := fmt.Sprintf("MP%03d", i); r.ID != want {
			t.Errorf("%s is at the place of %s", r.ID, want)
		}
		if r.Name == "" || strings.ToLower(r.Name) != r.Name || r.Doc == "" || r.Help == "" || r.Severity.weight() == 0 {
			t.Errorf("%+v", r)
		}
		if LookupRule(r.Name) != r || LookupRule(strings.ToLower(r.ID)) != r {
			t.Errorf("%s is not found", r.ID)
		}
	}
}
