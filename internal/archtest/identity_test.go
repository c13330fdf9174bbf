package archtest

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// displayed are the names of classes and layers and the texts of notes, which are
// for printing: what something is, its nn.Layer or its note.Code says.
var displayed = []string{
	"program.Class.Name", "program.Class.Python", "program.Class.Kind", "program.Class.Describe",
	"nn.Layer.Python", "nn.Layer.Kind", "module.Layer.Name",
	"note.Note.Text", "note.Note.Alone", "note.Note.String",
}

// displayers are the packages whose own names these are, and the functions
// elsewhere that may look at them.
var displayers = map[string]string{
	"internal/program":                           "prints them",
	"internal/nn":                                "prints them",
	"internal/note":                              "leaves out what is said already",
	"internal/estimate: Outcome.notes":           "names what is asked for in a line",
	"internal/graph/layers: define":              "keeps the table of layers by the names that specs call them by",
	"internal/graph/module: Env.Build":           "prints a constructor, unless the layer has done so",
	"internal/graph: comparison.module":          "compares the arguments of constructors, as they are printed, of one layer",
	"internal/graph/techniques: Job.uniqueNames": "makes names of classes unique",
	"internal/graph: unit.sequential":            "gives a class a name, unless it has one",
	"internal/graph: fn.callModule":              "puts an error into words",
	"internal/exporttorch: script.class":         "a script prints the classes that have a name",
	"internal/exporttorch: script.construct":     "a script calls a class by its name if it has one",
}

// TestNamesAreForPrinting finds comparisons of the names of classes and layers.
func TestNamesAreForPrinting(t *testing.T) {
	used := map[string]bool{}
	for _, p := range typed(t, "internal/program", "internal/nn", "internal/note") {
		if displayers[p.path] != "" {
			used[p.path] = true
			continue
		}
		for _, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				s := search{p.info, map[types.Object]bool{}}
				for _, at := range s.compared(fn.Body) {
					key := p.path + ": " + nameOf(fn)
					if used[key] = true; displayers[key] == "" {
						t.Errorf("%s: %s compares the name of a class or layer; ask its nn.Layer", p.fset.Position(at), nameOf(fn))
					}
				}
			}
		}
	}
	for key := range displayers {
		if !used[key] {
			t.Errorf("%s compares no names", key)
		}
	}
}

// TestCodesAreUsed: a note of each code is made somewhere.
func TestCodesAreUsed(t *testing.T) {
	used := map[string]bool{}
	all := 0
	for _, p := range typed(t, "internal/note") {
		for _, o := range p.info.Uses {
			if v, ok := o.(*types.Var); ok && isCode(v) && p.path != "internal/note" {
				used[v.Name()] = true
			}
		}
		for _, o := range p.info.Defs {
			if v, ok := o.(*types.Var); ok && isCode(v) && p.path == "internal/note" {
				defer func() {
					if !used[v.Name()] {
						t.Errorf("no note has the code %s", v.Name())
					}
				}()
				all++
			}
		}
	}
	if all < 30 {
		t.Errorf("only %d codes are found", all)
	}
}

// isCode reports whether a variable is a row of the table of codes.
func isCode(v *types.Var) bool {
	return v.Pkg() != nil && v.Parent() == v.Pkg().Scope() && v.Exported() && v.Type().String() == "*"+module+"internal/note.Code"
}

// TestComparedNames holds what is found against a text.
func TestComparedNames(t *testing.T) {
	const text = `package p

import (
	"strings"

	"github.com/memplan/memplan/internal/program"
)

func same(c *program.Class) bool { return c.Kind() == "Linear" }
func begins(c *program.Class) bool { return strings.HasPrefix(c.Python, "nn.Linear(") }
func later(c *program.Class) bool { kind, _, _ := strings.Cut(c.Python, "("); return kind == "nn.Linear" }
func choose(c *program.Class) int { switch c.Name { case "Conv1D": return 1 }; return 0 }
func look(c *program.Class, m map[string]int) int { return m[c.Kind()] }
func print(c *program.Class) string { return "a " + c.Kind() }
func path(c *program.Child) bool { return c.Path == "fc" }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := newInfo()
	if _, err := (&types.Config{Importer: exports(t, fset)}).Check("p", fset, []*ast.File{f}, info); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && len((&search{info, map[types.Object]bool{}}).compared(fn.Body)) > 0 {
			got = append(got, fn.Name.Name)
		}
	}
	if want := []string{"same", "begins", "later", "choose", "look"}; !slices.Equal(got, want) {
		t.Errorf("found in %v, want %v", got, want)
	}
}

// search finds comparisons of displayed names in a function.
type search struct {
	info *types.Info
	vars map[types.Object]bool // that hold such a name
}

// isName reports whether an expression is a displayed name, or is cut out of one.
func (s *search) isName(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.isName(e.X)
	case *ast.SliceExpr:
		return s.isName(e.X)
	case *ast.Ident:
		return s.vars[s.info.ObjectOf(e)]
	case *ast.SelectorExpr:
		return s.displayed(e)
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && s.displayed(sel) {
			return true
		}
		return s.ofPackage(e.Fun, "strings") && len(e.Args) > 0 && s.isName(e.Args[0])
	}
	return false
}

// displayed reports whether a selector is one of displayed.
func (s *search) displayed(e *ast.SelectorExpr) bool {
	sel := s.info.Selections[e]
	if sel == nil || sel.Obj().Pkg() == nil {
		return false
	}
	recv := sel.Recv()
	if p, ok := recv.(*types.Pointer); ok {
		recv = p.Elem()
	}
	n, ok := recv.(*types.Named)
	return ok && slices.Contains(displayed, n.Obj().Pkg().Name()+"."+n.Obj().Name()+"."+sel.Obj().Name())
}

// ofPackage reports whether a function is one of a package.
func (s *search) ofPackage(f ast.Expr, pkgs ...string) bool {
	sel, ok := f.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	fn, ok := s.info.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && slices.Contains(pkgs, fn.Pkg().Name())
}

// compared lists the places of comparisons.
func (s *search) compared(body *ast.BlockStmt) []token.Pos {
	for n := -1; n < len(s.vars); { // until no variable is found to hold a name
		n = len(s.vars)
		ast.Inspect(body, func(x ast.Node) bool {
			if a, ok := x.(*ast.AssignStmt); ok {
				for i, l := range a.Lhs {
					if id, ok := l.(*ast.Ident); ok && s.isName(a.Rhs[min(i, len(a.Rhs)-1)]) && isString(s.info.ObjectOf(id)) {
						s.vars[s.info.ObjectOf(id)] = true
					}
				}
			}
			return true
		})
	}
	var out []token.Pos
	ast.Inspect(body, func(x ast.Node) bool {
		found := false
		switch x := x.(type) {
		case *ast.BinaryExpr:
			found = (x.Op == token.EQL || x.Op == token.NEQ) && (s.isName(x.X) || s.isName(x.Y))
		case *ast.SwitchStmt:
			found = x.Tag != nil && s.isName(x.Tag)
		case *ast.IndexExpr:
			found = s.isName(x.Index)
		case *ast.CallExpr:
			found = s.ofPackage(x.Fun, "strings", "slices", "regexp", "path", "filepath") && !s.ofBuilder(x.Fun) && slices.ContainsFunc(x.Args, s.isName)
		}
		if found {
			out = append(out, x.Pos())
		}
		return true
	})
	return out
}

// ofBuilder reports whether a function writes.
func (s *search) ofBuilder(f ast.Expr) bool {
	name := f.(*ast.SelectorExpr).Sel.Name
	return strings.HasPrefix(name, "Write") || name == "Join" || name == "ReplaceAll" || name == "Repeat"
}

func isString(o types.Object) bool {
	if o == nil {
		return false
	}
	b, ok := o.Type().Underlying().(*types.Basic)
	return ok && b.Kind() == types.String
}

// nameOf is the name of a function, with the type that it is a method of.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	recv := f.Recv.List[0].Type
	if p, ok := recv.(*ast.StarExpr); ok {
		recv = p.X
	}
	if g, ok := recv.(*ast.IndexExpr); ok { // of any type
		recv = g.X
	}
	return recv.(*ast.Ident).Name + "." + f.Name.Name
}

// typedPackage is a package with the types of its expressions, tests aside.
type typedPackage struct {
	path  string // from the root
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

// typed reads the packages of the module that are made of one of some, or are one.
func typed(t *testing.T, some ...string) []typedPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}|{{.Dir}}|{{range .GoFiles}}{{.}} {{end}}|{{range .Deps}}{{.}} {{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	config := &types.Config{Importer: exports(t, fset)}
	var all []typedPackage
	for line := range strings.Lines(string(out)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		uses := append(strings.Fields(cells[3]), cells[0])
		if !slices.ContainsFunc(some, func(p string) bool { return slices.Contains(uses, module+p) }) {
			continue
		}
		p := typedPackage{path: strings.TrimPrefix(cells[0], module), fset: fset, info: newInfo()}
		for _, name := range strings.Fields(cells[2]) {
			f, err := parser.ParseFile(fset, filepath.Join(cells[1], name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, f)
		}
		if _, err := config.Check(cells[0], fset, p.files, p.info); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func newInfo() *types.Info {
	return &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
}

// exports imports packages as the compiler has exported them.
func exports(t *testing.T, fset *token.FileSet) types.Importer {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			files[path] = file
		}
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}
