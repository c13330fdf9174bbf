// Package spectest mutates the trees of YAML and JSON files at random; for tests
// of what reads them.
package spectest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Mutator changes trees at random. All that it does follows from what it was made
// of: equal texts and sources give equal mutants.
type Mutator struct {
	donors []*yaml.Node
	keys   []string // of all donors
}

// New makes a mutator that grafts parts of these texts and renames keys to theirs.
// What is no YAML among them is left out.
func New(texts [][]byte) *Mutator {
	m := &Mutator{}
	seen := map[string]bool{}
	for _, text := range texts {
		root, err := parse(text)
		if err != nil {
			continue
		}
		m.donors = append(m.donors, root)
		for _, s := range slotsOf(root) {
			if k := *s.node(); s.key && !seen[k.Value] {
				seen[k.Value] = true
				m.keys = append(m.keys, k.Value)
			}
		}
	}
	return m
}

// Source returns the source of random numbers of a seed.
func Source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Choices returns a source that begins with the numbers in text, each in one byte:
// what a fuzzer changes there changes a single choice.
func Choices(text []byte, seed uint64) *rand.Rand {
	return rand.New(&choices{bytes.NewReader(text), rand.NewPCG(seed, 0)})
}

type choices struct {
	given *bytes.Reader
	rest  *rand.PCG
}

func (c *choices) Uint64() uint64 {
	b, err := c.given.ReadByte()
	if err != nil {
		return c.rest.Uint64()
	}
	return uint64(b) << 56 // small numbers are made of the upper bits
}

// maxMutations is the greatest number of changes of one mutant.
const maxMutations = 4

// YAML returns the text after one to four mutations.
func (m *Mutator) YAML(r *rand.Rand, text []byte) ([]byte, error) {
	root, err := m.tree(r, text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// JSON does what YAML does with a text in JSON, of which it makes JSON.
func (m *Mutator) JSON(r *rand.Rand, text []byte) ([]byte, error) {
	root, err := m.tree(r, text)
	if err != nil {
		return nil, err
	}
	return appendJSON(nil, root, map[*yaml.Node]bool{}), nil
}

func (m *Mutator) tree(r *rand.Rand, text []byte) (*yaml.Node, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	for range 1 + r.IntN(1+r.IntN(maxMutations)) {
		m.mutate(r, root)
	}
	return root, nil
}

var errEmpty = errors.New("spectest: the text is empty")

// parse reads the document of a text, without comments and in block style: in flow
// style the library would write an empty value as a string.
func parse(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, errEmpty
	}
	var bare func(n *yaml.Node)
	bare = func(n *yaml.Node) {
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		n.Style &^= yaml.FlowStyle
		for _, c := range n.Content {
			bare(c)
		}
	}
	bare(&doc)
	return &doc, nil
}

// slot is a place in a tree that holds a node: an item, a key or a value.
type slot struct {
	of  *yaml.Node
	i   int
	key bool
}

func (s slot) node() **yaml.Node { return &s.of.Content[s.i] }

// name is the key of a value, "" of an item.
func (s slot) name() string {
	if s.of.Kind == yaml.MappingNode && !s.key {
		return s.of.Content[s.i-1].Value
	}
	return ""
}

// slotsOf lists the places of a tree. What an alias stands for is not of it.
func slotsOf(root *yaml.Node) []slot {
	var out []slot
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, c := range n.Content {
			out = append(out, slot{n, i, n.Kind == yaml.MappingNode && i%2 == 0})
			walk(c)
		}
	}
	walk(root)
	return out
}

// holds reports whether a tree has that node in it.
func holds(tree, n *yaml.Node) bool {
	if tree == n {
		return true
	}
	for _, c := range tree.Content {
		if holds(c, n) {
			return true
		}
	}
	return false
}

// copyOf is a tree like another. Aliases keep what they stand for.
func copyOf(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i := range n.Content {
		c.Content[i] = copyOf(n.Content[i])
	}
	return &c
}

func plain(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

func quoted(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: yaml.DoubleQuotedStyle, Tag: "!!str"}
}

func seq(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Content: items}
}

func mapping(pairs ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: pairs}
}

// appendJSON writes a tree as JSON: keys are strings, an alias that contains
// itself is null.
func appendJSON(b []byte, n *yaml.Node, under map[*yaml.Node]bool) []byte {
	switch n.Kind {
	case yaml.DocumentNode:
		return append(appendJSON(b, n.Content[0], under), '\n')
	case yaml.AliasNode:
		if n.Alias == nil || under[n.Alias] {
			return append(b, "null"...)
		}
		under[n.Alias] = true
		b = appendJSON(b, n.Alias, under)
		delete(under, n.Alias)
		return b
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, c := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, c, under)
		}
		return append(b, ']')
	case yaml.MappingNode:
		b = append(b, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, n.Content[i].Value), ':')
			b = appendJSON(b, n.Content[i+1], under)
		}
		return append(b, '}')
	}
	if bare := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0; bare {
		_, err := strconv.ParseFloat(n.Value, 64)
		switch {
		case n.Value == "true", n.Value == "false", n.Value == "null":
			return append(b, n.Value...)
		case n.Value == "", n.Value == "~":
			return append(b, "null"...)
		case err == nil && strings.Trim(n.Value, "+-.0123456789eE") == "":
			return append(b, n.Value...)
		}
	}
	return appendString(b, n.Value)
}

// appendString writes a string of JSON; what is not ASCII stands as it is.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else if c < ' ' {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}
