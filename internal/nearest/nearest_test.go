package nearest

import (
	"strings"
	"testing"
)

func TestTo(t *testing.T) {
	layers := []string{"Linear", "Conv2d", "Conv3d", "ReLU", "GELU", "LayerNorm", "SGD", "Adam", "AdamW", "dim", "up", "batch_size", "grad_clip", "grad_norm"}
	for s, want := range map[string]string{
		"Liner":      "Linear", // a letter is missing
		"Linnear":    "Linear", // one too many
		"Lineer":     "Linear", // another one
		"Lniear":     "Linear", // two swapped
		"linear":     "Linear", // case does not count
		"Conv2D":     "Conv2d",
		"Conv4d":     "Conv2d", // the first of equals
		"LayerNrom":  "LayerNorm",
		"AdmaW":      "AdamW",
		"Adma":       "Adam",
		"dmi":        "dim",
		"ReLU":       "ReLU",
		"u":          "",           // too short to guess
		"batch":      "batch_size", // its first word
		"grad":       "",           // it may be either
		"Convolve":   "",
		"Frobnicate": "",
		"":           "",
	} {
		if got := To(s, layers); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	if got := To("x", nil); got != "" {
		t.Errorf("of no candidates: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"ab", "ba", 1},
		{"kitten", "sitting", 3}, {"ca", "abc", 3}, {"abcd", "badc", 2},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
	if got := distance(strings.Repeat("x", 1000), "abc"); got < 900 {
		t.Errorf("a long name is at distance %d", got)
	}
}
