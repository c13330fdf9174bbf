package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// node is a key of the spec that is being written.
type node struct {
	key  string
	text string // of a value in one line; "": a mapping of kids, or a list of items
	kids []*node
	list []string // items, each in one line
	from spec.Origin
	why  string // a comment

	within spec.Origin // where the section is from
}

// sections is the order of a spec's sections.
var sections = []string{"memplan", "name", "params", "model", "freeze", "peft", "trainer", "data", "parallel", "device"}

// put sets a key of the spec, the last of a path, to a value in YAML.
func (n *node) put(path, text string, from spec.Origin) *node {
	for _, k := range strings.Split(path, ".") {
		i := slices.IndexFunc(n.kids, func(c *node) bool { return c.key == k })
		if i < 0 {
			n.kids = append(n.kids, &node{key: k})
			i = len(n.kids) - 1
		}
		n = n.kids[i]
	}
	n.text, n.kids, n.list, n.from = text, nil, nil, from
	return n
}

// get finds a key of the spec; nil if it is not set.
func (n *node) get(path string) *node {
	for _, k := range strings.Split(path, ".") {
		i := slices.IndexFunc(n.kids, func(c *node) bool { return c.key == k })
		if i < 0 {
			return nil
		}
		n = n.kids[i]
	}
	return n
}

// says is the value of a key; "" if it is not set.
func (n *node) says(path string) string {
	if k := n.get(path); k != nil {
		return k.text
	}
	return ""
}

// print writes the spec, and notes where each line is from: what follows from the
// program's defaults, from where the section is.
func (n *node) print(b *strings.Builder, origins *[]spec.Origin, indent string) {
	section := n.origin()
	for _, c := range n.kids {
		comment := ""
		if c.why != "" {
			comment = "  # " + c.why
		}
		text := c.text
		if text == "" && len(c.kids)+len(c.list) == 0 {
			text = "{}"
		}
		if text != "" {
			fmt.Fprintf(b, "%s%s: %s%s\n", indent, c.key, text, comment)
		} else {
			fmt.Fprintf(b, "%s%s:%s\n", indent, c.key, comment)
		}
		from := c.origin()
		if from == (spec.Origin{}) && indent != "" {
			from, c.within = section, section
		}
		*origins = append(*origins, from)
		for _, it := range c.list {
			fmt.Fprintf(b, "%s  - %s\n", indent, it)
			*origins = append(*origins, from)
		}
		c.print(b, origins, indent+"  ")
	}
}

// origin is where a key is from, or the first key below it that is from a file.
func (n *node) origin() spec.Origin {
	if n.from != (spec.Origin{}) {
		return n.from
	}
	for _, c := range n.kids {
		if o := c.origin(); o != (spec.Origin{}) {
			return o
		}
	}
	return n.within
}

// said lists the paths of the keys that are from the files.
func (n *node) said(path string, out *[]string) {
	for _, c := range n.kids {
		at := c.key
		if path != "" {
			at = path + "." + c.key
		}
		if c.from != (spec.Origin{}) {
			*out = append(*out, at)
		}
		c.said(at, out)
	}
}

// quote writes a string of a spec, in which ${ would begin an expression.
func quote(s string) string { return strconv.Quote(strings.ReplaceAll(s, "${", "${'$'}{")) }

// plainWord reports strings that YAML reads as themselves without quotes.
func plainWord(s string) bool {
	for i, c := range s {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
		case i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == '/'):
		default:
			return false
		}
	}
	_, isBool := word(s)
	return s != "" && !isBool && strings.ToLower(s) != "null" && strings.ToLower(s) != "y" && strings.ToLower(s) != "n"
}

// text writes a string as YAML.
func text(s string) string {
	if plainWord(s) {
		return s
	}
	return quote(s)
}

// flow writes a value of a file as YAML in one line.
func flow(v *spec.Value) string {
	switch v.Kind {
	case spec.Null:
		return "null"
	case spec.Str:
		if on, isBool := word(v.Str); isBool {
			return strconv.FormatBool(on)
		}
		return text(v.Str)
	case spec.List:
		items := make([]string, len(v.Items))
		for i, it := range v.Items {
			items[i] = flow(it)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case spec.Map:
		items := make([]string, len(v.Pairs))
		for i, p := range v.Pairs {
			items[i] = text(p.Key.Str) + ": " + flow(p.Value)
		}
		return "{" + strings.Join(items, ", ") + "}"
	case spec.Bool:
		return strconv.FormatBool(v.Bool)
	case spec.Int:
		return strconv.FormatInt(v.Int, 10)
	}
	f := strconv.FormatFloat(v.Float, 'g', -1, 64)
	if !strings.ContainsAny(f, ".") {
		if m, e, ok := strings.Cut(f, "e"); ok {
			f = m + ".0e" + e
		} else {
			f += ".0"
		}
	}
	return f
}
