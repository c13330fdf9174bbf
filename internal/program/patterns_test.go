package program

import (
	"math/rand/v2"
	"path"
	"slices"
	"testing"
)

// TestPatterns holds patterns against Python's fnmatch.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		fits, covers  bool
	}{
		{"layers.0", "layers.0", true, true},
		{"layers.0", "layers.0.attn.weight", false, true},
		{"layers.0", "layers.01", false, false},
		{"*.q_proj", "layers.0.attn.q_proj", true, true},
		{"*.q_proj", "q_proj", false, false},
		{"layers.*.attn", "layers.3.block.attn", true, true}, // a star reaches over dots
		{"layers.[0-3]", "layers.3", true, true},
		{"layers.[!0-3]", "layers.3.bias", false, false},
		{"layers.[!0-3]", "layers.4.bias", false, true},
		{"layer?", "layers", true, true},
		{"*", "anything.at.all", true, true},
	} {
		p := Patterns{c.pattern}
		if p.Fits(c.path) != c.fits || p.Cover(c.path) != c.covers {
			t.Errorf("%q and %q: fits %v, covers %v", c.pattern, c.path, p.Fits(c.path), p.Cover(c.path))
		}
	}
	for _, bad := range []string{"", "a[", "a/b", `a\*`, "[^a]"} {
		if CheckPattern(bad) == nil {
			t.Errorf("%q passes as a pattern", bad)
		}
	}
}

func TestPaths(t *testing.T) {
	linear := &Class{Python: "nn.Linear(1, 1)", Params: []Param{{Name: "weight"}, {Name: "bias"}}}
	block := &Class{Name: "Block", Params: []Param{{Name: "scale"}}, Children: []Child{{Path: "fc", Class: linear}}}
	root := &Class{Name: "Model", Children: []Child{{Path: "layers.0", Class: block}, {Path: "head", Class: linear}, {Path: "layers.1", Class: block}}}
	if got, want := root.ModulePaths(), []string{"layers", "layers.0", "layers.0.fc", "layers.1", "layers.1.fc", "head"}; !slices.Equal(got, want) {
		t.Errorf("modules %q, want %q", got, want)
	}
	want := []string{
		"layers.0.scale", "layers.0.fc.weight", "layers.0.fc.bias", "layers.1.scale", "layers.1.fc.weight", "layers.1.fc.bias", "head.weight", "head.bias",
	}
	if got := root.ParamPaths(); !slices.Equal(got, want) {
		t.Errorf("parameters %q, want %q", got, want)
	}
}

// TestStars compares patterns of stars with what package path makes of them.
func TestStars(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(letters string, most int) string {
		out := make([]byte, r.IntN(most+1))
		for i := range out {
			out[i] = letters[r.IntN(len(letters))]
		}
		return string(out)
	}
	fits := 0
	for range 100_000 {
		pattern, name := text("ab.**", 6), text("ab.", 8)
		want, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Patterns{pattern}).Fits(name); got != want {
			t.Fatalf("%q fits %q: %v, want %v", name, pattern, got, want)
		}
		if want {
			fits++
		}
	}
	if fits < 1000 {
		t.Errorf("%d names fit", fits)
	}
}
