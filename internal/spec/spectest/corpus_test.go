//go:build unix

package spectest_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/specs"
)

// sample is a spec that mutants are made of, valid or not.
type sample struct {
	name  string
	text  []byte
	files map[string][]byte // beside it
}

// corpus lists every spec of testdata and the presets, in one order.
func corpus(t testing.TB) []sample {
	t.Helper()
	var all []sample
	for _, folder := range []string{"ok", "err"} {
		for _, file := range glob(t, folder, "*.yaml") {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, sample{name: file, text: text})
		}
	}
	for _, name := range specs.Names() {
		text, err := specs.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sample{name: "preset:" + name, text: text})
	}
	for _, file := range glob(t, "script", "*.txtar") {
		all = append(all, scripted(t, file)...)
	}
	return append(append(all, recorded(t)...), huggingFace(t)...)
}

func glob(t testing.TB, folder, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(needs.File(t, folder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatal(folder, pattern, err)
	}
	return files
}

// scripted lists the specs of a script, each with the files that it may name.
func scripted(t testing.TB, file string) []sample {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	for _, f := range archive.Files {
		if !strings.Contains(string(f.Data), "memplan:") || path.Ext(f.Name) != ".yaml" && path.Ext(f.Name) != ".yml" {
			continue
		}
		files := map[string][]byte{}
		for _, other := range archive.Files {
			if name, err := filepath.Rel(path.Dir(f.Name), other.Name); err == nil {
				files[name] = other.Data
			}
		}
		all = append(all, sample{name: file + "/" + f.Name, text: f.Data, files: files})
	}
	return all
}

// recorded lists the specs that recordings were made of.
func recorded(t testing.TB) []sample {
	t.Helper()
	var all []sample
	for _, file := range glob(t, "fuzz", "*.json.gz") {
		var cases []struct{ Name, Spec string }
		unzip(t, file, &cases)
		for _, c := range cases {
			all = append(all, sample{name: file + "/" + c.Name, text: []byte(c.Spec)})
		}
	}
	return all
}

// huggingFace makes a spec for the smallest recorded config.json of each model
// type.
func huggingFace(t testing.TB) []sample {
	t.Helper()
	smallest := map[string][]byte{}
	for _, file := range glob(t, "truth-hf", "*.json.gz") {
		var r struct {
			Config struct {
				HF json.RawMessage `json:"hf"`
			} `json:"config"`
		}
		unzip(t, file, &r)
		var of struct {
			Type string `json:"model_type"`
		}
		if err := json.Unmarshal(r.Config.HF, &of); err != nil {
			t.Fatal(file, err)
		}
		if had := smallest[of.Type]; had == nil || len(r.Config.HF) < len(had) {
			smallest[of.Type] = r.Config.HF
		}
	}
	types := make([]string, 0, len(smallest))
	for name := range smallest {
		types = append(types, name)
	}
	slices.Sort(types)
	var all []sample
	for _, name := range types {
		const text = "memplan: 1\nmodel: {hf: config.json, with: {seq: 32, attn: sdpa, mask: padded, pad_token_id: 0}}\ntrain: {batch_size: 2, optimizer: AdamW}\n"
		all = append(all, sample{name: "hf:" + name, text: []byte(text), files: map[string][]byte{"config.json": smallest[name]}})
	}
	return all
}

func unzip(t testing.TB, file string, to any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(file, err)
	}
	if err := json.NewDecoder(z).Decode(to); err != nil {
		t.Fatal(file, err)
	}
}
