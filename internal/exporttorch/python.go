package exporttorch

import (
	"slices"
	"strings"
)

// word is an identifier in the text of a script.
type word struct {
	text string
	user bool // it stands for a name of the job's
	at   int  // offset in the text
}

// isWord reports whether a byte may stand in an identifier.
func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// token is a word, or a character of an operator; "\n" ends a statement.
type token struct {
	word
	depth   int  // of brackets around it
	attr    bool // it stands behind a dot
	keyword bool // it names an argument: name=
}

// tokens splits Python's text; strings, numbers and comments are left out. Each
// statement begins with a token of its indentation.
func tokens(text string) []token {
	var out []token
	depth, begin := 0, true
	for i := 0; i < len(text); {
		if begin {
			n := len(text[i:]) - len(strings.TrimLeft(text[i:], " "))
			out = append(out, token{word: word{text: strings.Repeat(" ", n), at: i}})
			i, begin = i+n, false
			continue
		}
		c := text[i]
		switch {
		case c == '\n':
			if depth == 0 {
				out, begin = append(out, token{word: word{text: "\n", at: i}}), true
			}
			i++
		case c == ' ' || c == '\\':
			i++
		case c == '#':
			i += len(line(text[i:]))
		case strings.HasPrefix(text[i:], `"""`):
			i += 3 + strings.Index(text[i+3:], `"""`) + 3
		case c == '"' || c == '\'':
			for i++; text[i] != c; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i++
		case c == mark[0]:
			n := strings.IndexByte(text[i+1:], mark[0]) + 2
			out = append(out, named(text, i, n, depth, true, out))
			i += n
		case c >= '0' && c <= '9':
			for i < len(text) && (isWord(text[i]) || text[i] == '.') {
				i++
			}
		case isWord(c):
			n := 1
			for i+n < len(text) && isWord(text[i+n]) {
				n++
			}
			out = append(out, named(text, i, n, depth, false, out))
			i += n
		default:
			if strings.IndexByte("([{", c) >= 0 {
				depth++
			} else if strings.IndexByte(")]}", c) >= 0 {
				depth--
			}
			out = append(out, token{word: word{text: string(c), at: i}, depth: depth})
			i++
		}
	}
	return out
}

func line(text string) string {
	l, _, _ := strings.Cut(text, "\n")
	return l
}

// named is the word of n bytes at an offset.
func named(text string, at, n, depth int, user bool, before []token) token {
	rest := strings.TrimLeft(text[at+n:], " ")
	return token{
		word: word{text[at : at+n], user, at}, depth: depth,
		attr:    len(before) > 0 && before[len(before)-1].text == "." && before[len(before)-1].at == at-1,
		keyword: depth > 0 && strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "=="),
	}
}

// isName reports whether a token is an identifier other than a keyword of
// Python.
func (t *token) isName() bool {
	return t.text != "" && (t.user || isWord(t.text[0])) && !keywords[t.text]
}

// frame is a function, a class or the module while its text is read.
type frame struct {
	indent      int
	function    bool
	bound, used map[string]bool
}

// outside lists the names that a script binds at its top level or that its
// functions take from there, builtins included; names of the job's aside.
func outside(text string) map[string]bool {
	top := &frame{indent: -1, bound: map[string]bool{}, used: map[string]bool{}}
	frames := []*frame{top}
	all := tokens(text)
	for len(all) > 0 {
		end := slices.IndexFunc(all, func(t token) bool { return t.text == "\n" })
		if end < 0 {
			end = len(all)
		}
		indent, s := len(all[0].text), all[1:end]
		all = all[min(end+1, len(all)):]
		if len(s) == 0 {
			continue
		}
		for n := len(frames) - 1; frames[n].indent >= indent; n-- {
			frames = leave(frames)
		}
		inner := frames[len(frames)-1]
		if s[0].text == "def" || s[0].text == "class" {
			inner.bound[s[1].text] = inner.function || inner == top
			inner = &frame{indent, s[0].text == "def", map[string]bool{}, map[string]bool{}}
			frames, s = append(frames, inner), s[2:]
		}
		inner.statement(s, top)
	}
	for len(frames) > 1 {
		frames = leave(frames)
	}
	for n, ok := range top.bound {
		top.used[n] = top.used[n] || ok
	}
	return top.used
}

// leave ends the innermost frame: what it does not bind is of the one around it.
func leave(frames []*frame) []*frame {
	n := len(frames) - 1
	for name := range frames[n].used {
		if !frames[n].bound[name] || !frames[n].function {
			frames[n-1].used[name] = true
		}
	}
	return frames[:n]
}

// statement notes the names of a statement: those that it binds, as a target, a
// parameter, a loop's variable or by import, and those that it uses.
func (f *frame) statement(s []token, top *frame) {
	last := -1 // the sign of an assignment
	for i := range s {
		if s[i].text == "=" && s[i].depth == 0 && !compares(s, i) {
			last = i
		}
	}
	params := f.function && s[0].text == "("
	binding := false
	for i := range s {
		t := &s[i]
		switch t.text {
		case "for", "as", "import":
			binding = true
			continue
		case "in", ":":
			binding = false
			continue
		case ".":
			continue
		}
		if !t.isName() || t.attr || t.user {
			continue
		}
		parameter := params && t.depth == 1 && (s[i-1].text == "(" || s[i-1].text == "," || s[i-1].text == "*")
		switch {
		case s[0].text == "global":
			top.bound[t.text] = true
		case t.keyword && !parameter:
		case parameter || binding || (i < last && t.depth == 0):
			f.bound[t.text] = true
		default:
			f.used[t.text] = true
		}
	}
}

// compares reports whether the = at an index is part of ==, <=, >= or !=.
func compares(s []token, i int) bool {
	next := func(k int, signs string) bool {
		return k >= 0 && k < len(s) && len(s[k].text) == 1 && strings.Contains(signs, s[k].text) && (s[k].at == s[i].at-1 || s[k].at == s[i].at+1)
	}
	return next(i-1, "=<>!") || next(i+1, "=")
}
