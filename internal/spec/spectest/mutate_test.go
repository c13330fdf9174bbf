package spectest

import (
	"bytes"
	"encoding/json"
	"testing"

	"gopkg.in/yaml.v3"
)

const text = "memplan: 1\nmodel:\n  inputs: {x: [4], y: [4]}\n  layers: [{Linear: 4}, ReLU: , {add: [x, y], name: a}]\ntrain: {batch_size: 8, precision: fp32}\n"

// A mutant is made of its seed alone, and most differ from the text and from each
// other.
func TestSeeds(t *testing.T) {
	m := New([][]byte{[]byte(text), []byte("a: [1, 2, {b: c}]"), []byte("[")})
	seen := map[string]bool{text: true}
	const n = 500
	for seed := range uint64(n) {
		a, err := m.YAML(Source(seed), []byte(text))
		if err != nil {
			t.Fatal(seed, err)
		}
		b, err := m.YAML(Source(seed), []byte(text))
		if err != nil || !bytes.Equal(a, b) {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, a, b)
		}
		seen[string(a)] = true
	}
	if len(seen) < n*3/4 {
		t.Errorf("%d mutants of %d seeds", len(seen), n)
	}
}

// Each kind of change is made, and leaves a tree that can be written.
func TestKinds(t *testing.T) {
	m := New([][]byte{[]byte(text), []byte("model: {layers: [Tanh], loss: mean}\nstep: [{forward: {model: m}}]\n")})
	root, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	before, err := yaml.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range kinds {
		changed := 0
		for seed := range uint64(100) {
			root, err := parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			k.do(m, Source(seed), root)
			after, err := yaml.Marshal(root)
			if err != nil {
				t.Fatalf("kind %d, seed %d: %v", i, seed, err)
			}
			if !bytes.Equal(before, after) {
				changed++
			}
		}
		if changed < 20 {
			t.Errorf("kind %d changes %d of 100 trees", i, changed)
		}
	}
}

// What is written as JSON is JSON.
func TestJSON(t *testing.T) {
	m := New([][]byte{[]byte(`{"a": [1, 2.5, null, true, "x\"y"], "b": {"c": ""}}`), []byte(text)})
	good := 0
	const n = 300
	for seed := range uint64(n) {
		out, err := m.JSON(Source(seed), []byte(`{"a": [1, 2.5, null, true, "x\"y"], "b": {"c": ""}, "n": -3}`))
		if err != nil {
			t.Fatal(err)
		}
		if json.Valid(out) {
			good++
		}
	}
	if good < n*9/10 { // 08 and 1e999 are no numbers of JSON
		t.Errorf("%d of %d are JSON", good, n)
	}
}
