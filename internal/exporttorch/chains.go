package exporttorch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// plain prints statements; a chain x = m[0](x), x = m[1](x), ... becomes a loop.
func (p *printer) plain(stmts []program.Stmt) {
	for i := 0; i < len(stmts); {
		n := p.chain(stmts[i:])
		if n < 3 {
			p.stmt(&stmts[i])
			i++
			continue
		}
		e := stmts[i].Value
		list, first := p.item(e)
		items := p.self + p.attr(list)
		if p.dicts[list] {
			items += ".values()"
		} else if total := p.listLen(list); first > 0 || n < total {
			items += fmt.Sprintf("[%d:%d]", first, first+n)
		}
		p.printf("for module in %s:", items)
		p.indent++
		p.printf("%s = %s", p.names(stmts[i].Targets), p.call(e, "module", forwardKeywords(p.class.Children[e.Child].Class)))
		p.indent--
		i += n
	}
}

// chain counts the statements from the first on that call the items of one
// ModuleList in turn, alike in all else.
func (p *printer) chain(stmts []program.Stmt) (n int) {
	var list, text string
	defer func() {
		if p.dicts[list] && n < p.listLen(list) { // which has no slices
			n = 0
		}
	}()
	for i := range stmts {
		s := &stmts[i]
		if s.Kind != program.Assign || s.Unpack || s.Value == nil || s.Value.Kind != program.CallMod || p.self == "" {
			break
		}
		l, k := p.item(s.Value)
		t := p.names(s.Targets) + "|" + p.call(s.Value, "", forwardKeywords(p.class.Children[s.Value.Child].Class))
		if i == 0 {
			list, text = l, t
			if k < 0 {
				return 0
			}
		}
		_, first := p.item(stmts[0].Value)
		if l != list || t != text || k != first+i {
			break
		}
		n++
	}
	return n
}

// item splits the path of a called module into its list and index; -1 if it is
// in no list.
func (p *printer) item(e *program.Expr) (string, int) {
	path := p.class.Children[e.Child].Path
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return path, -1
	}
	n, err := strconv.Atoi(path[i+1:])
	if err != nil {
		return path, -1
	}
	return path[:i], n
}

func (p *printer) listLen(list string) int {
	n := 0
	for _, ch := range p.class.Children {
		if rest, ok := strings.CutPrefix(ch.Path, list+"."); ok && !strings.Contains(rest, ".") {
			n++
		}
	}
	return n
}
