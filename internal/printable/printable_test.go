package printable_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/printable"
)

// Every character that is not of a printable category is escaped, in every form.
func TestEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) || r > 0x3000 && r%97 != 0 && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Zs) {
			continue // of many of the same kind, a sample
		}
		s := "x" + string(r) + "y"
		for form, text := range map[string]string{"Text": printable.Text(s), "Lines": printable.Lines(s), "Quoted": printable.Quoted(s), "JSON": printable.JSON(s), "File": printable.File(s)} {
			kept := strings.ContainsRune(text, r)
			if want := unicode.IsGraphic(r) || (r == '\n' || r == '\t') && form != "Text" && form != "File"; kept != want && r != '\'' {
				t.Fatalf("%s of %U: %q", form, r, text)
			}
		}
	}
}

var forms = []struct{ in, text, file string }{
	{"gpt", "gpt", "gpt"},
	{"a\nb\tc", `a\u000ab\u0009c`, `$'a\012b\011c'`},
	{"::error::x", `\u003a:error::x`, "::error::x"},
	{" \u3000::x", " \u3000" + `\u003a:x`, "' \u3000::x'"},
	{"a ::x", "a ::x", "'a ::x'"},
	{"##[a]##vso[b # [", `#\u0023[a]#\u0023vso[b # [`, `$'\043\043[a]\043\043vso[b \043 ['`},
	{"\u2028\xff\U000e0041", `\u2028` + "\ufffd" + `\U000e0041`, `$'\342\200\250\377\363\240\201\201'`},
	{"-x y'z", "-x y'z", `'./-x y'\''z'`},
	{"-", "-", "-"},
	{"$(a)", "$(a)", "'$(a)'"},
	{"", "", "''"},
}

func TestForms(t *testing.T) {
	for _, c := range forms {
		if got := printable.Text(c.in); got != c.text {
			t.Errorf("Text(%q) is %q, want %q", c.in, got, c.text)
		}
		if got := printable.File(c.in); got != c.file {
			t.Errorf("File(%q) is %q, want %q", c.in, got, c.file)
		}
		if again := printable.Text(c.text); again != c.text {
			t.Errorf("Text(%q) is %q", c.text, again)
		}
	}
	const lines = "a\n::b\n\t::c\r\x1b[1m"
	if got := printable.Lines(lines); got != "a\n"+`\u003a:b`+"\n\t"+`\u003a:c\u000d\u001b[1m` {
		t.Errorf("%q", got)
	}
	if got := printable.Sprintf("%s %s %d", "a\nb", printable.Verbatim("\x1b"), 1); got != `a\u000ab `+"\x1b 1" {
		t.Errorf("%q", got)
	}
	if got, want := printable.Masked("a\tb\u202e ##[x"), "a\tb\ufffd #\ufffd[x"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What stands in string literals of JSON and YAML means the same.
func TestQuotedMeansTheSame(t *testing.T) {
	const name = "a\u2028b\u202ec\U000e0041d##[e]\u00ad"
	text, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(printable.JSON(string(text))), &got); err != nil || got != name {
		t.Errorf("%v: %q", err, got)
	}
	if err := yaml.Unmarshal([]byte(printable.Quoted(`"`+name+`"`)), &got); err != nil || got != name {
		t.Errorf("%v: %q", err, got)
	}
}

// A shell reads the name of a file that is printed as the name itself.
func TestFormsInShell(t *testing.T) {
	bash := needs.Tool(t, "bash")
	for _, c := range forms {
		want := c.in
		if strings.HasPrefix(want, "-") && want != "-" {
			want = "./" + want
		}
		if out, err := exec.Command(bash, "-c", "printf '%s' "+c.file).Output(); err != nil || string(out) != want {
			t.Errorf("a shell reads %s as %q: %v", c.file, out, err)
		}
	}
}
