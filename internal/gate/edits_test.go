package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
)

// seed makes the edits of a run; a failure prints it.
const seed = 20261121

// edits is how many edits of each kind are tried.
func edits() int {
	if testing.Short() {
		return 20
	}
	return 200
}

// original is a spec of testdata/specs.
type original struct {
	path, text string
	peak       *Figures
}

func originals(t testing.TB) []original {
	files, err := filepath.Glob("testdata/specs/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	var out []original
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		o, err := play(&estimate.Recipe{Path: f, Text: text})
		if err != nil {
			t.Fatal(f, err)
		}
		out = append(out, original{f, string(text), o.figures()})
	}
	return out
}

// checkEdit checks an edited spec against the original.
func checkEdit(t *testing.T, o *original, edited, growth string) *Result {
	t.Helper()
	conf, err := ParseConfig("", ".", []byte("max_growth: "+growth+"\nheadroom: 5%\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	recipe := func(text string) *estimate.Recipe { return &estimate.Recipe{Path: o.path, Text: []byte(text)} }
	r, err := Check(context.Background(), &Options{
		Specs: []string{o.path}, Config: conf, Against: "main",
		Recipe: func(string) (*estimate.Recipe, error) { return recipe(edited), nil },
		Before: func(string, []byte) (*estimate.Recipe, error) { return recipe(o.text), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// has reports whether a rule found something.
func has(r *Result, rule *Rule) bool {
	return slices.ContainsFunc(r.All(), func(f Located) bool { return f.Rule == rule.ID })
}

var (
	integer = regexp.MustCompile(`([ \[{,(]|: )(\d{1,5})([\],}\n ])`)
	swaps   = [][2]string{
		{"precision: amp-bf16", "precision: fp32"}, {"precision: amp-fp16", "precision: fp32"}, {"SGD", "AdamW"}, {"RMSprop", "Adam"},
		{"- ReLU\n", "- GELU\n        - ReLU\n"}, {"- GELU", "- Sigmoid\n    - GELU"}, {"depth: 18", "depth: 34"}, {"loop: flat", "loop: function"},
		{"num_layers: 2", "num_layers: 3"}, {"optimizer: AdamW", "optimizer: {AdamW: {amsgrad: true}}"}, {"{lr: 0.1, momentum: 0.9}", "{lr: 0.1}"},
	}
)

// grow edits a spec at random: a number, mostly upward and often by little, or
// something that costs or saves memory.
func grow(rnd *rand.Rand, text string) string {
	if rnd.IntN(5) == 0 {
		s := swaps[rnd.IntN(len(swaps))]
		return strings.Replace(text, s[0], s[1], 1)
	}
	body := strings.Index(text, "\n") // not the version of the language
	at := integer.FindAllStringSubmatchIndex(text[body:], -1)
	m := at[rnd.IntN(len(at))]
	from, to := body+m[4], body+m[5]
	n, _ := strconv.Atoi(text[from:to])
	factor := []float64{1.01, 1.02, 1.05, 1.1, 1.5, 2, 0.8}[rnd.IntN(7)]
	return text[:from] + strconv.Itoa(max(n+1, int(float64(n)*factor))) + text[to:]
}

// Every edit that raises a peak by 1 % or more is caught, and none that does not.
func TestInjectedGrowth(t *testing.T) {
	want := edits()
	all, rnd := originals(t), rand.New(rand.NewPCG(seed, 1))
	caught, quiet := 0, 0
	for tries := 0; caught < want && tries < 20*want; tries++ {
		o := &all[rnd.IntN(len(all))]
		edited := grow(rnd, o.text)
		for rnd.IntN(3) == 0 {
			edited = grow(rnd, edited)
		}
		out, err := play(&estimate.Recipe{Path: o.path, Text: []byte(edited)})
		if err != nil {
			continue // no spec any more
		}
		now, most := out.figures(), 0.0
		for _, p := range [][2]float64{
			{float64(o.peak.AllocatedBytes), float64(now.AllocatedBytes)}, {float64(o.peak.ReservedBytes), float64(now.ReservedBytes)},
			{float64(o.peak.ExpectedBytes), float64(now.ExpectedBytes)},
		} {
			most = max(most, p[1]/p[0]-1)
		}
		r := checkEdit(t, o, edited, "0.999%")
		switch found := has(r, growth); {
		case most >= 0.01 && (!found || !r.Failed):
			t.Errorf("seed %d: %s grew by %.2f %% and nothing was said\n%s", seed, o.path, 100*most, edited)
		case most < 0.00999 && found:
			t.Errorf("seed %d: %s grew by %.3f %%, which is allowed\n%s", seed, o.path, 100*most, edited)
		case found:
			caught++
			for _, f := range r.All() {
				if f.Rule == growth.ID && f.Line < 2 {
					t.Errorf("the finding stands at line %d: %s", f.Line, f.Message)
				}
			}
		default:
			quiet++
		}
	}
	t.Logf("%d edits that raise a peak by 1 %% or more were caught, %d others were let pass", caught, quiet)
	if caught < want || quiet < want/10 {
		t.Errorf("only %d and %d edits", caught, quiet)
	}
}

// The edits that change nothing; each returns the text as it was where it does
// not apply.
var harmless = []struct {
	name string
	edit func(rnd *rand.Rand, text string) string
}{
	{"comment line", func(rnd *rand.Rand, text string) string {
		lines := strings.Split(text, "\n")
		return strings.Join(slices.Insert(lines, rnd.IntN(len(lines)), strings.Repeat(" ", rnd.IntN(5))+"# memplan: 2, batch_size: 999"), "\n")
	}},
	{"comment behind a line", func(rnd *rand.Rand, text string) string {
		lines := strings.Split(text, "\n")
		lines[rnd.IntN(len(lines)-1)] += "  # was 4096"
		return strings.Join(lines, "\n")
	}},
	{"empty line", func(rnd *rand.Rand, text string) string {
		lines := strings.Split(text, "\n")
		return strings.Join(slices.Insert(lines, rnd.IntN(len(lines)), ""), "\n")
	}},
	{"trailing space", func(rnd *rand.Rand, text string) string {
		lines := strings.Split(text, "\n")
		lines[rnd.IntN(len(lines)-1)] += "   "
		return strings.Join(lines, "\n")
	}},
	{"line ends of Windows", func(_ *rand.Rand, text string) string {
		return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
	}},
	{"deeper indentation", func(_ *rand.Rand, text string) string {
		return regexp.MustCompile(`(?m)^( +)`).ReplaceAllString(text, "$1$1")
	}},
	{"name", func(rnd *rand.Rand, text string) string {
		return regexp.MustCompile(`(?m)^name: .*$`).ReplaceAllString(text, fmt.Sprintf("name: renamed-%d", rnd.IntN(1000)))
	}},
	{"param", func(rnd *rand.Rand, text string) string {
		return regexp.MustCompile(`\b(width|hidden|depth)\b( ?[:}])`).ReplaceAllStringFunc(text, func(s string) string {
			if strings.Contains(text, "preset:") { // the preset's own
				return s
			}
			return "n_" + s
		})
	}},
	{"block", func(_ *rand.Rand, text string) string {
		return regexp.MustCompile(`\bstage\b`).ReplaceAllString(text, "residual")
	}},
	{"quotes", func(rnd *rand.Rand, text string) string {
		q := []string{`"`, `'`}[rnd.IntN(2)]
		return regexp.MustCompile(`(?m)(gpu|precision|loop|dtype|host_ram): ([\w-]+)`).ReplaceAllString(text, "$1: "+q+"$2"+q)
	}},
	{"quoted keys", func(_ *rand.Rand, text string) string {
		return regexp.MustCompile(`(?m)^(train|device|model)?( *)(batch_size|gpu|precision|optimizer|layers)?:`).ReplaceAllStringFunc(text, func(s string) string {
			key := strings.TrimSpace(strings.TrimSuffix(s, ":"))
			if key == "" || strings.Contains(key, " ") {
				return s
			}
			return strings.Replace(s, key, `"`+key+`"`, 1)
		})
	}},
	{"order of sections", func(rnd *rand.Rand, text string) string {
		parts := regexp.MustCompile(`(?m)^[a-z"]`).FindAllStringIndex(text, -1)
		var sections []string
		for i, p := range parts {
			end := len(text)
			if i+1 < len(parts) {
				end = parts[i+1][0]
			}
			sections = append(sections, strings.TrimRight(text[p[0]:end], "\r\n")+"\n")
		}
		rnd.Shuffle(len(sections), func(i, j int) { sections[i], sections[j] = sections[j], sections[i] })
		return text[:parts[0][0]] + strings.Join(sections, "")
	}},
	{"order of keys", func(rnd *rand.Rand, text string) string {
		return regexp.MustCompile(`\{(\w+: [^{}\[\],]+), (\w+: [^{}\[\],]+)\}`).ReplaceAllStringFunc(text, func(s string) string {
			a, b, _ := strings.Cut(s[1:len(s)-1], ", ")
			if rnd.IntN(2) == 0 || strings.HasPrefix(a, "name") {
				return s
			}
			return "{" + b + ", " + a + "}"
		})
	}},
}

// No edit that changes nothing is taken for growth, or changes the verdict.
func TestNoFalseAlarm(t *testing.T) {
	want := edits()
	all, rnd := originals(t), rand.New(rand.NewPCG(seed, 2))
	count := map[string]int{}
	done := 0
	for tries := 0; done < want && tries < 20*want; tries++ {
		o := &all[rnd.IntN(len(all))]
		edited, names := o.text, []string{}
		for n := 1 + rnd.IntN(4); n > 0; n-- {
			h := harmless[rnd.IntN(len(harmless))]
			if after := h.edit(rnd, edited); after != edited {
				edited, names = after, append(names, h.name)
			}
		}
		if edited == o.text {
			continue
		}
		done++
		for _, n := range names {
			count[n]++
		}
		if r := checkEdit(t, o, edited, "0%"); r.Failed || has(r, growth) || has(r, specError) {
			t.Errorf("seed %d: %s: a false alarm after %v: %+v\n%s", seed, o.path, names, r.All(), edited)
		}
	}
	t.Logf("%d edits that change nothing: %v", done, count)
	if done < want || len(count) < len(harmless) && !testing.Short() {
		t.Errorf("only %d edits of %d kinds", done, len(count))
	}
}
