package cli

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/memplan/memplan/internal/needs"
)

// onTerminal runs memplan on a terminal of so many columns.
func onTerminal(columns int, env map[string]string, args ...string) string {
	var out, errs strings.Builder
	s := &Streams{In: strings.NewReader(""), Out: &out, Err: &errs, OutTTY: true, Columns: columns, Env: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}
	Main(args, s)
	return out.String()
}

var words = regexp.MustCompile(`[A-Za-z_.]{4,}`)

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestTerminalWidth holds that no line is wider than the terminal, and that nothing is broken inside a word.
func TestTerminalWidth(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.json")
	if _, errs, code := memplan("", "export", "trace", "preset:lenet", "--out-file", trace); code != 0 {
		t.Fatal(errs)
	}
	for _, args := range [][]string{
		{"estimate", "preset:gpt2", "--gpu", "rtx-3060"}, {"estimate", "preset:mlp", "--batch-curve"}, {"estimate", "preset:lenet", "--quick", "--gpu", "h100,rtx-3060"},
		{"check", "preset:gpt2", "--gpu", "rtx-3060"}, {"diff", "preset:gpt2", "preset:vit", "--quick"}, {"simulate", trace}, {"list", "devices"}, {"list", "rules"},
		{"explain", needs.File(t, "oom", "expandable.log")},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			plain, _, _ := memplan("", args...)
			known := words.FindAllString(plain, -1)
			for _, width := range []int{60, 80, 120, 200} {
				text := onTerminal(width, map[string]string{"LANG": "en_US.UTF-8"}, args...)
				text = escapes.ReplaceAllString(text, "")
				if text == "" {
					t.Fatal("nothing is printed")
				}
				for line := range strings.Lines(text) {
					line = strings.TrimSuffix(line, "\n")
					if n := utf8.RuneCountInString(line); n > width && len(strings.Fields(line)) > 1 {
						t.Errorf("of %d columns a line has %d: %s", width, n, line)
					}
					for _, word := range words.FindAllString(line, -1) {
						if !slices.Contains(known, word) && !slices.Contains(strings.Fields("Allocated over events more than usable that"), word) {
							t.Errorf("of %d columns there is the word %q, which is not there elsewhere", width, word)
						}
					}
				}
			}
		})
	}
}

// TestTerminalColors holds when there are colours, and what a terminal without Unicode shows.
func TestTerminalColors(t *testing.T) {
	job := []string{"estimate", "preset:mlp", "--quick"}
	for _, c := range []struct {
		env     map[string]string
		more    []string
		colored bool
	}{
		{nil, nil, true},
		{map[string]string{"NO_COLOR": ""}, nil, false},
		{map[string]string{"TERM": "dumb"}, nil, false},
		{map[string]string{"NO_COLOR": "1"}, []string{"--color", "always"}, true},
		{nil, []string{"--color", "never"}, false},
	} {
		text := onTerminal(80, c.env, append(slices.Clone(job), c.more...)...)
		if n := strings.Count(text, "\x1b["); (n > 10) != c.colored || !c.colored && n > 0 {
			t.Errorf("%v %v: %d colours", c.env, c.more, n)
		}
		if strings.ContainsAny(text, "▁▂▃█") {
			t.Errorf("%v: a terminal without UTF-8 gets blocks", c.env)
		}
	}
	if text := onTerminal(80, map[string]string{"LC_ALL": "C.UTF-8", "NO_COLOR": ""}, job...); !strings.Contains(text, "█") {
		t.Error("a terminal with UTF-8 gets no blocks")
	}
	if text := onTerminal(80, nil, append(job, "--format", "json")...); strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "{\n") {
		t.Errorf("JSON on a terminal is %.100q", text)
	}
	if out, _, _ := memplan("", job...); strings.Contains(out, "\x1b") || strings.Contains(out, "Allocated over") {
		t.Error("what goes to no terminal has colours or a drawing")
	}
}
