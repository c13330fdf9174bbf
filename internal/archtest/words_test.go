package archtest

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWords: messages, docs and comments use none of the words that docs/style.md
// lists. Tests may quote them.
func TestWords(t *testing.T) {
	word := forbidden(t)
	check := func(where, text string) {
		if found := word.FindString(text); found != "" {
			t.Errorf("%s: %q; docs/style.md says what to write", where, found)
		}
	}
	literals := 0
	eachSource(t, func(p string, set *token.FileSet, file *ast.File) {
		if isTest(p) {
			return
		}
		for _, c := range file.Comments {
			check(set.Position(c.Pos()).String(), c.Text())
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
				literals++
				check(set.Position(l.Pos()).String(), l.Value)
			}
			return true
		})
	})
	if literals < 1000 {
		t.Errorf("only %d texts", literals)
	}
	for _, dir := range []string{"docs", "specs"} {
		err := fs.WalkDir(os.DirFS("../.."), dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || p == "docs/style.md" || strings.HasSuffix(p, ".go") {
				return err
			}
			return checkLines(p, check)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := checkLines("README.md", check); err != nil {
		t.Fatal(err)
	}
}

func checkLines(p string, check func(where, text string)) error {
	text, err := os.ReadFile(filepath.Join("../..", p))
	check(p, string(text))
	return err
}

// forbidden matches the words of the last table of docs/style.md, across lines.
func forbidden(t *testing.T) *regexp.Regexp {
	text, err := os.ReadFile("../../docs/style.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n## Words\n")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \|$`).FindAllStringSubmatch(table, -1)
	if !ok || len(rows) < 5 {
		t.Fatalf("docs/style.md has %d words", len(rows))
	}
	var words []string
	for _, r := range rows[1:] { // below the head
		words = append(words, strings.ReplaceAll(regexp.QuoteMeta(r[1]), " ", `\s+`))
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
}
