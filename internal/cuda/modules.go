package cuda

import (
	"fmt"
	"slices"
	"strings"
)

// The driver compiles a module as a whole when it is loaded, which takes some 3 s for
// each megabyte of PTX. So a module has only functions that work together: one alone, or
// a family that meets in scratch memory. It is loaded when one of them is first launched.

// code is a file of PTX, divided into its functions.
type code struct {
	head         string
	declarations [][2]string // of memory that functions name: the name and the line
	functions    map[string]compiledFunction
	names        []string // of functions, in their order
}

// compiledFunction is the text of a function, and its family.
type compiledFunction struct{ text, family string }

// What the compiler writes in front of a function, and of its name.
const (
	begin = "\t// .globl\t"
	entry = ".visible .entry "
)

// newCode divides the text that a compiler has written.
func newCode(text string) (*code, error) {
	parts := strings.Split(text, begin)
	c := &code{head: parts[0], functions: map[string]compiledFunction{}}
	for _, part := range parts[1:] {
		body, rest, ok := strings.Cut(part, entry)
		name, _, named := strings.Cut(rest, "(")
		if !ok || !named || strings.Contains(rest, entry) {
			return nil, fmt.Errorf("the kernels' code has no function, or several, behind %.40q", part)
		}
		rest = entry + rest
		kept := begin
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, ".") {
				kept += line
				continue
			}
			memory, _, _ := strings.Cut(line, "[")
			c.declarations = append(c.declarations, [2]string{memory[strings.LastIndex(memory, " ")+1:], line})
		}
		c.functions[name] = compiledFunction{kept + rest, family(name, rest)}
		c.names = append(c.names, name)
	}
	return c, nil
}

// family is the name of the functions that share scratch memory with one, "" of one that
// needs none: what they compute and, where there are several, the type of it.
func family(name, text string) string {
	if !strings.Contains(text, " scratch") {
		return ""
	}
	words := strings.Split(name, "_")
	for _, w := range words[1:] {
		if slices.Contains([]string{"float", "int", "f16", "bf16"}, w) {
			return words[0] + "_" + w
		}
	}
	return words[0]
}

// joins reports whether a function adds up what others left in scratch memory.
func joins(name string) bool {
	return strings.Contains(name, "_finish") || strings.HasSuffix(name, "_combine")
}

// module is the name of the module in which a function runs, and its functions. What adds up
// parts is in the modules of all families of its kind, and runs in that of maker, which has
// left them; to others maker does not matter.
func (c *code) module(maker, name string) (module string, functions []string, err error) {
	if !joins(name) {
		maker = name
	}
	family := c.functions[maker].family
	if family == "" {
		if joins(name) {
			return "", nil, fmt.Errorf("function %s leaves nothing for %s", maker, name)
		}
		return name, []string{name}, nil
	}
	kind, _, _ := strings.Cut(family, "_")
	for _, n := range c.names {
		if f := c.functions[n].family; f == family || joins(n) && strings.HasPrefix(f, kind) {
			functions = append(functions, n)
		}
	}
	if !slices.Contains(functions, name) {
		return "", nil, fmt.Errorf("function %s cannot add up what %s leaves", name, maker)
	}
	return family, functions, nil
}

// text is the code of some functions.
func (c *code) text(functions []string) string {
	var body strings.Builder
	for _, n := range functions {
		body.WriteString(c.functions[n].text)
	}
	var b strings.Builder
	b.WriteString(c.head)
	for _, d := range c.declarations {
		if names(body.String(), d[0]) {
			b.WriteString(d[1])
		}
	}
	b.WriteString(body.String())
	return b.String()
}

// names reports whether code has a name as a whole.
func names(text, name string) bool {
	for {
		i := strings.Index(text, name)
		if i < 0 {
			return false
		}
		if text = text[i+len(name):]; text[0] != '_' {
			return true
		}
	}
}
