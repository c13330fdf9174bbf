package docs

import (
	"strings"
	"testing"
)

// TestTopicsOf reads a page with all that makes a topic.
func TestTopicsOf(t *testing.T) {
	const page = "# Title\n\nnot a topic\n\n## Names: variables\n\nText.\n\n### `if`, `for`: which\n\n" +
		"```yaml\n# a comment\n- `no`: item\n```\n\n### `train`: keys\n\n<!-- keys: train -->\n- `loop` (`a`): first\n  and second.\n- `f(x)`: a function.\n<!-- end -->\n\n## Empty\n"
	var got []string
	for _, topic := range topicsOf(page) {
		got = append(got, topic.Name+"|"+topic.Title+"|"+strings.ReplaceAll(topic.Text, "\n", "/"))
	}
	want := []string{
		"names|Names: variables|Text.",
		"if|`if`, `for`: which|```yaml/# a comment/- `no`: item/```",
		"for|`if`, `for`: which|```yaml/# a comment/- `no`: item/```",
		"train|`train`: keys|- `loop` (`a`): first/  and second./- `f(x)`: a function.",
		"loop|`train`: keys|- `loop` (`a`): first/  and second.",
		"train.loop|`train`: keys|- `loop` (`a`): first/  and second.",
		"f|`train`: keys|- `f(x)`: a function.",
		"train.f|`train`: keys|- `f(x)`: a function.",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("topics\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Links within the pages and between them lead to their headings.
func TestLinks(t *testing.T) {
	pages := map[string]string{"language.md": Language, "peft.md": PEFT, "operators.md": Operators}
	anchors := map[string]bool{}
	for name, page := range pages {
		for line := range strings.Lines(page) {
			if heading := strings.TrimLeft(line, "#"); heading != line {
				anchors[name+"#"+anchor(heading)] = true
			}
		}
	}
	for name, page := range pages {
		for other := range pages {
			for _, part := range strings.Split(page, "]("+other+"#")[1:] {
				if a, _, _ := strings.Cut(part, ")"); !anchors[other+"#"+a] {
					t.Errorf("%s: %s has no heading #%s", name, other, a)
				}
			}
		}
		for _, part := range strings.Split(page, "](#")[1:] {
			if a, _, _ := strings.Cut(part, ")"); !anchors[name+"#"+a] {
				t.Errorf("%s has no heading #%s", name, a)
			}
		}
	}
}

// anchor is what links call a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case c == ' ':
			b.WriteRune('-')
		case c == '-' || c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		}
	}
	return b.String()
}
