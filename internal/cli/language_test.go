package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/docs"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

// languagePages are the pages of the reference.
var languagePages = []string{"docs/language.md", "docs/peft.md", "docs/operators.md"}

// TestLanguage holds the reference against what it is about. The parts between
// comments are made from tables; each example is elaborated, and the Python below
// it is what memplan export torch prints; examples of mistakes fail with the
// messages below them. -update writes all of that.
func TestLanguage(t *testing.T) {
	for _, name := range languagePages {
		path := "../../" + name
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := examples(t, parts(t, string(was)))
		if *update {
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if page != string(was) {
			t.Errorf("%s is stale: run go test ./internal/cli -run TestLanguage -update, and read the difference\n%s", name, firstDifference(string(was), page))
		}
		n := 0
		for line := range strings.Lines(page) {
			if n++; len([]rune(strings.TrimSuffix(line, "\n"))) > lineWidth {
				t.Errorf("%s:%d is wider than %d columns", name, n, lineWidth)
			}
		}
	}
}

func firstDifference(was, is string) string {
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d: %s\nnow: %s", i+1, a[i], b[i])
		}
	}
	return "one ends before the other"
}

var partRE = regexp.MustCompile(`(?s)<!-- (keys|layers|operators|optimizers|schedulers|evidence)(?:: (\w+))? -->\n.*?<!-- end -->`)

// parts makes the parts of the page that tables know.
func parts(t *testing.T, page string) string {
	keys := spec.Keys()
	return partRE.ReplaceAllStringFunc(page, func(s string) string {
		m := partRE.FindStringSubmatch(s)
		head, _, _ := strings.Cut(s, "\n")
		var b strings.Builder
		switch m[1] {
		case "keys":
			if keys[m[2]] == nil {
				t.Errorf("docs/language.md: there is no section %q", m[2])
			}
			for _, k := range keys[m[2]] {
				if m[2] != "teacher" || !isKey(keys["model"], k) {
					writeKey(&b, k)
				}
			}
		case "layers":
			for _, n := range layers.Names() {
				l := layers.Lookup(n)
				text := n + paramsOf(l.Sigs()[0])
				if ins := l.InputNames(); len(ins) > 1 {
					text += " of " + strings.Join(ins, ", ")
				}
				writeCall(&b, text)
			}
		case "operators":
			for _, n := range aten.Names() {
				if s := aten.Lookup(n); s.Op.Evidence().Basis != op.Refused {
					writeCall(&b, n+paramsOf(s.Sig))
				}
			}
		case "evidence":
			for _, r := range aten.Rows() {
				e := r.Evidence()
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, e.Basis, e.In("2.14"))
			}
			return head + "\n| row | 2.6 | 2.14 |\n|---|---|---|\n" + b.String() + "<!-- end -->"
		case "optimizers":
			for _, n := range optim.Names() {
				writeCall(&b, n+paramsOf(optim.Lookup(n).Signature()))
			}
		case "schedulers":
			for _, n := range optim.ScheduleNames() {
				row := optim.LookupSchedule(n)
				text := n + paramsOf(row.Signature())
				if row.Parts {
					text += " of schedulers"
				}
				writeCall(&b, text)
			}
		}
		if m[1] != "keys" {
			return head + "\n```text\n" + b.String() + "```\n<!-- end -->"
		}
		return head + "\n" + b.String() + "<!-- end -->"
	})
}

// isKey reports whether a key is among others: a teacher has those of a model.
func isKey(keys []spec.Key, k spec.Key) bool {
	return slices.ContainsFunc(keys, func(o spec.Key) bool { return o.Name == k.Name })
}

// writeKey writes an item of a list of keys.
func writeKey(b *strings.Builder, k spec.Key) {
	var about []string
	switch {
	case k.Enum != nil:
		about = append(about, "`"+strings.Join(k.Enum, "`, `")+"`")
	case k.Form != "":
		about = append(about, k.Form)
	}
	switch {
	case k.Min != "" && k.Max != "":
		about = append(about, k.Min+" to "+k.Max)
	case k.Min != "":
		about = append(about, "at least "+k.Min)
	}
	if k.Default != "" {
		about = append(about, "default `"+k.Default+"`")
	}
	text := "- `" + k.Name + "`"
	if about != nil {
		text += " (" + strings.Join(about, "; ") + ")"
	}
	text += ": " + k.Doc
	if k.Later {
		text += " (accepted, not modelled)"
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	if len(k.Also) > 0 {
		text += " Also called `" + strings.Join(k.Also, "`, `") + "`."
	}
	if len(k.Words) > 0 {
		var words []string
		for _, w := range k.Words {
			word, value, _ := strings.Cut(w, ": ")
			words = append(words, "`"+word+"` for `"+value+"`")
		}
		text += " Also " + strings.Join(words, ", ") + "."
	}
	for i, line := range report.Wrap(text, lineWidth-2) {
		if i > 0 {
			line = "  " + line
		}
		b.WriteString(line + "\n")
	}
}

// paramsOf prints the parameters of a signature.
func paramsOf(s *op.Sig) string { return s.String()[strings.Index(s.String(), "("):] }

// writeCall writes how something is called in lines of a page.
func writeCall(b *strings.Builder, text string) {
	for i, line := range report.Wrap(text, lineWidth-4) {
		if i > 0 {
			line = "    " + line
		}
		b.WriteString(line + "\n")
	}
}

var blockRE = regexp.MustCompile("(?sm)^```(\\w+)([^\n]*)\n(.*?)^```$")

// examples runs the examples of the page and writes what comes of them.
func examples(t *testing.T, page string) string {
	var example, script, errs string
	n := 0
	return blockRE.ReplaceAllStringFunc(page, func(s string) string {
		m := blockRE.FindStringSubmatch(s)
		kind, about, text := m[1], strings.TrimSpace(m[2]), m[3]
		switch kind {
		case "yaml":
			n++
			var code int
			example = text
			script, errs, code = exported(t, whole(text))
			wrong := about == "wrong"
			if wrong != (code == exitUsage) || code != exitOK && code != exitUsage {
				t.Errorf("docs/language.md, example %d: exit code %d\n%s%s", n, code, example, errs)
			}
		case "python":
			if script == "" {
				t.Errorf("docs/language.md: Python below example %d, which is none", n)
				return s
			}
			out := excerpt(script, about)
			if out == "" {
				t.Errorf("docs/language.md, example %d: the script has no part %q", n, about)
			}
			return "```python " + about + "\n" + out + "```"
		case "text":
			if about == "message" {
				return "```text message\n" + messages(errs) + "```"
			}
		}
		return s
	})
}

// TestLanguagePlays estimates the examples of the page.
func TestLanguagePlays(t *testing.T) {
	n := 0
	for _, m := range blockRE.FindAllStringSubmatch(docs.Language, -1) {
		if m[1] != "yaml" || strings.TrimSpace(m[2]) != "" {
			continue
		}
		n++
		var out, errs strings.Builder
		s := &Streams{In: strings.NewReader(whole(m[3])), Out: &out, Err: &errs, Env: os.LookupEnv}
		if code := Main([]string{"estimate", "--quick", "-"}, s); code != exitOK {
			t.Errorf("docs/language.md: exit code %d\n%s%s", code, m[3], errs.String())
		}
	}
	if n < 50 {
		t.Errorf("only %d examples", n)
	}
}

// modelKeys are the keys of a model that examples begin with.
var modelKeys = []string{"inputs:", "params:", "blocks:", "modules:", "parameters:", "buffers:", "layers:"}

// whole makes a spec of an example, which may be the section of a model, or some
// sections of a spec.
func whole(text string) string {
	first, _, _ := strings.Cut(text, " ")
	first, _, _ = strings.Cut(first, "\n")
	has := func(key string) bool { return regexp.MustCompile(`(?m)^` + key).MatchString(text) }
	switch {
	case has("memplan:"):
		return text
	case slices.Contains(modelKeys, first) && !has("model:"):
		spec := "memplan: 1\nmodel:\n  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
		if !has("inputs:") {
			spec += "  inputs: {x: [16]}\n"
		}
		if !has("loss:") {
			spec += "  loss: {mean: , inputs: out}\n"
		}
		return spec
	case has("model:") || has("models:"):
		return "memplan: 1\n" + text
	}
	return "memplan: 1\nmodel:\n  inputs: {x: [16], y: {shape: [], dtype: int64}}\n  layers: [{Linear: 32}, ReLU, {Linear: 10}]\n  loss: {cross_entropy: {target: y}}\n" + text
}

// exported is the script that memplan export torch prints.
func exported(t *testing.T, text string) (script, errs string, code int) {
	t.Helper()
	var stdout, stderr strings.Builder
	s := &Streams{In: strings.NewReader(text), Out: &stdout, Err: &stderr, Env: os.LookupEnv}
	code = Main([]string{"export", "torch", "-"}, s)
	return stdout.String(), stderr.String(), code
}

// measuring is what a script does to tell its peaks.
var measuring = regexp.MustCompile(`(?m)^(import json|    torch\.cuda\.reset_peak_memory_stats\(\)|    print\(json.*)\n+`)

// excerpt is a part of a script: all of it but for what measures, its classes, the
// model's forward, the body of its __init__, what makes a batch, the step, the loop,
// or a function by its name.
func excerpt(script, part string) string {
	script = measuring.ReplaceAllString(script, "")
	between := func(from, to string) string {
		_, rest, ok := strings.Cut(script, from)
		if !ok {
			return ""
		}
		if i := strings.Index(rest, to); i >= 0 {
			rest = rest[:i+1]
		}
		return strings.Trim(from+rest, "\n") + "\n"
	}
	method := func(name string) string {
		_, model, _ := strings.Cut(script, "\nclass Model(")
		return regexp.MustCompile(`(?m)^    def ` + name + `\(.*\n((?:        .*\n|\n)*)`).FindString(model)
	}
	dedented := func(text, by string) string {
		return strings.TrimRight(regexp.MustCompile(`(?m)^`+by).ReplaceAllString(text, ""), "\n") + "\n"
	}
	switch part {
	case "script":
		return script
	case "classes":
		_, rest, _ := strings.Cut(script, "\n\n\n")
		rest, _, _ = strings.Cut(rest, "\n\n\ndevice = ")
		return rest + "\n"
	case "forward":
		return dedented(method(part), "    ")
	case "__init__":
		_, body, _ := strings.Cut(method(part), "super().__init__()\n")
		return dedented(body, "        ")
	case "step":
		return between("def step(i):", "\n\n\n")
	case "loop":
		return between("for i in range(1, 4):", "\n\n\n")
	case "batch":
		return between("def next_batch", "\n\n\n")
	}
	return between("def "+part+"(", "\n\n\n")
}

// messages are what is wrong, without places.
func messages(errs string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^<stdin>:\d+:\d+: (.*)$`).FindAllStringSubmatch(errs, -1) {
		for _, line := range report.Wrap(m[1], lineWidth) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// TestTopics: every key, statement, modifier and function has its place in the
// reference, so that memplan explain tells of it.
func TestTopics(t *testing.T) {
	topics := docs.Names()
	need := func(kind string, names ...string) {
		for _, n := range names {
			if !slices.Contains(topics, n) {
				t.Errorf("docs/language.md says nothing of the %s %s", kind, n)
			}
		}
	}
	for section, keys := range spec.Keys() {
		for _, k := range keys {
			need("key of "+section, k.Name)
		}
	}
	need("statement", spec.Statements...)
	need("statement of a step", spec.StepStatements...)
	need("key of an entry", spec.Modifiers...)
	need("function of expressions", spec.Functions()...)
}

// What is explained fits the terminal, but for code.
func TestExplainWidth(t *testing.T) {
	for _, name := range []string{"checkpoint", "MultiheadAttention", "expandable-segments"} {
		for _, width := range []int{0, 60} {
			var out, errs strings.Builder
			s := &Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Env: os.LookupEnv, Columns: width}
			if code := Main([]string{"explain", name}, s); code != exitOK {
				t.Fatalf("%s: exit code %d\n%s", name, code, errs.String())
			}
			widest := 0
			for line := range strings.Lines(out.String()) {
				if !strings.HasPrefix(line, "      ") { // code
					widest = max(widest, len([]rune(strings.TrimSuffix(line, "\n"))))
				}
			}
			if most := s.width(); widest > most || widest < most*3/4 {
				t.Errorf("%s: the widest line has %d columns of %d", name, widest, most)
			}
		}
	}
}

// Below the mistakes of a spec, a terminal shows where to read on.
func TestExplainHint(t *testing.T) {
	for _, c := range []struct {
		text string
		tty  bool
		want bool
	}{{"memplan: 1\nmodl: 3\n", true, true}, {"memplan: 1\nmodl: 3\n", false, false}, {"memplan: 1\nmodel: {preset: mlp}\n", true, false}} {
		var out, errs strings.Builder
		s := &Streams{In: strings.NewReader(c.text), Out: &out, Err: &errs, Env: os.LookupEnv, ErrTTY: c.tty}
		Main([]string{"export", "torch", "-"}, s)
		if got := strings.HasSuffix(errs.String(), explainHint+"\n"); got != c.want {
			t.Errorf("%q on a terminal (%v): the hint is there: %v\n%s", c.text, c.tty, got, errs.String())
		}
	}
}
