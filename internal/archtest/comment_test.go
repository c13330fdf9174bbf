package archtest

import (
	"go/ast"
	"go/token"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every package says what it is for.
func TestPackageComments(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{if .GoFiles}}{{.ImportPath}} {{.Doc}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		pkg, comment, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg == "" {
			continue
		}
		packages++
		if !strings.HasPrefix(comment, "Package ") && !strings.HasPrefix(comment, "Command ") {
			t.Errorf("%s has no package comment", pkg)
		}
	}
	if packages < 30 {
		t.Errorf("only %d packages", packages)
	}
}

// A comment that begins with a name begins with one that it declares: a word in lower or
// mixed case, which begins no sentence, or one that is the head or tail of a name.
func TestNamesOfComments(t *testing.T) {
	comments := 0
	eachSource(t, func(p string, files *token.FileSet, file *ast.File) {
		check := func(doc *ast.CommentGroup, names ...*ast.Ident) {
			if doc == nil {
				return
			}
			comments++
			if word := foreignName(doc.Text(), names); word != "" {
				t.Errorf("%s:%d: the comment of %v begins with %s", p, files.Position(doc.Pos()).Line, names, word)
			}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !strings.HasPrefix(d.Name.Name, "Test") { // of which a comment says what holds
					check(d.Doc, d.Name)
				}
			case *ast.GenDecl:
				var all []*ast.Ident
				for _, s := range d.Specs {
					var names []*ast.Ident
					var doc *ast.CommentGroup
					switch s := s.(type) {
					case *ast.TypeSpec:
						names, doc = []*ast.Ident{s.Name}, s.Doc
					case *ast.ValueSpec:
						names, doc = s.Names, s.Doc
					}
					check(doc, names...)
					all = append(all, names...)
				}
				if len(all) > 0 {
					check(d.Doc, all...)
				}
			}
		}
	})
	if comments < 3000 {
		t.Errorf("only %d comments", comments)
	}
}

var (
	firstWord = regexp.MustCompile(`^([A-Za-z_]\w*)[\s,;]`)
	nameCase  = regexp.MustCompile(`^[a-z_]|^[A-Z]+[a-z]\w*[A-Z]`)
)

// foreignName is the first word of a comment where it is a name, and none of those; "" else.
func foreignName(doc string, names []*ast.Ident) string {
	m := firstWord.FindStringSubmatch(doc)
	if m == nil || slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.Name == m[1] }) {
		return ""
	}
	word := m[1]
	if nameCase.MatchString(word) {
		return word
	}
	for _, n := range names {
		if rest, ok := strings.CutSuffix(n.Name, word); ok && rest != "" && len(word) > 1 {
			return word
		}
		if rest, ok := strings.CutPrefix(n.Name, word); ok && rest != "" && strings.ToUpper(rest[:1]) == rest[:1] {
			return word
		}
	}
	return ""
}
