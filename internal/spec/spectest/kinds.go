package spectest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// kinds are the ways to change a tree, with their weights. Those that leave more
// specs valid come more often: what is refused at once reaches little.
var kinds = []struct {
	weight int
	do     func(m *Mutator, r *rand.Rand, root *yaml.Node)
}{
	{3, remove}, {2, null}, {4, duplicate}, {2, retype}, {12, nudge}, {1, swap}, {4, swapBeside}, {2, graft}, {8, graftAlike}, {1, rename}, {1, wrap}, {1, alias}, {1, long}, {1, deep}, {3, expression},
}

// mutate changes a tree once.
func (m *Mutator) mutate(r *rand.Rand, root *yaml.Node) {
	all := 0
	for _, k := range kinds {
		all += k.weight
	}
	n := r.IntN(all)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			k.do(m, r, root)
			return
		}
	}
}

// pick returns a place of the tree other than the document's own, and false if
// there is none that keep allows.
func pick(r *rand.Rand, root *yaml.Node, keep func(s slot) bool) (slot, bool) {
	all := slices.DeleteFunc(slotsOf(root), func(s slot) bool { return s.of == root || !keep(s) })
	if len(all) == 0 {
		return slot{}, false
	}
	return all[r.IntN(len(all))], true
}

func anywhere(slot) bool { return true }

func isValue(s slot) bool { return !s.key }

func isScalar(s slot) bool { return !s.key && (*s.node()).Kind == yaml.ScalarNode }

// remove takes away an item, or a key with its value.
func remove(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, anywhere)
	if !ok {
		return
	}
	if s.of.Kind == yaml.MappingNode {
		s.of.Content = slices.Delete(s.of.Content, s.i&^1, s.i|1+1)
		return
	}
	s.of.Content = slices.Delete(s.of.Content, s.i, s.i+1)
}

// null makes null or nothing of a node.
func null(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	if s, ok := pick(r, root, anywhere); ok {
		*s.node() = plain([]string{"null", "", "~"}[r.IntN(3)])
	}
}

// duplicate repeats an item, or a key with its value.
func duplicate(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, isValue)
	if !ok {
		return
	}
	at := s.i
	part := s.of.Content[at : at+1]
	if s.of.Kind == yaml.MappingNode {
		at--
		part = s.of.Content[at : at+2]
	}
	var more []*yaml.Node
	for i := range []int{1, 1, 1, 2, 3, 8, 100}[r.IntN(7)] {
		for _, n := range part {
			more = append(more, copyOf(n))
		}
		if s.of.Kind == yaml.MappingNode && r.IntN(2) == 0 { // under another key
			more[2*i].Value += strconv.Itoa(i + 2)
		}
	}
	s.of.Content = slices.Insert(s.of.Content, at+len(part), more...)
}

// scalars are texts of scalars that mean something to some reader.
var scalars = []string{
	"0", "1", "-1", "2", "3", "7", "64", "1000", "100000", "2147483647", "2147483648", "4294967296", "1125899906842624", "9223372036854775807", "-9223372036854775808",
	"9223372036854775808", "1e999", "1e308", "-1e308", "1e-320", "0.5", "-0.5", "0.0", "-0.0", "1.0", "1.5", ".nan", ".inf", "true", "false", "null", "", "x", "-", ".", "[]", "a[0]", "xs[]",
	"*", "**", "a.b.c", "0x10", "08", "1_000", "24GiB", "-1GiB", "9999999PiB", "5%", "-5%", "1e30GiB", "self", "torch", "preset:gpt", "../x", "/dev/null", "é\u2028", "$", "${", "${}", "${x}",
}

// scalar is a new scalar.
func scalar(r *rand.Rand) *yaml.Node {
	text := scalars[r.IntN(len(scalars))]
	if r.IntN(5) == 0 {
		return quoted(text)
	}
	return plain(text)
}

// retype makes a node of another kind.
func retype(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, anywhere)
	if !ok {
		return
	}
	n := *s.node()
	switch r.IntN(7) {
	case 0:
		*s.node() = seq()
	case 1:
		*s.node() = mapping()
	case 2:
		if n.Kind == yaml.ScalarNode { // 3 to "3", "x" to x
			*s.node() = &yaml.Node{Kind: yaml.ScalarNode, Value: n.Value, Style: n.Style ^ yaml.DoubleQuotedStyle}
		} else {
			n.Kind ^= yaml.SequenceNode ^ yaml.MappingNode
			n.Tag = ""
			if n.Kind == yaml.MappingNode && len(n.Content)%2 == 1 {
				n.Content = append(n.Content, plain(""))
			}
		}
	case 3:
		*s.node() = seq(scalar(r), scalar(r))
	case 4:
		*s.node() = mapping(plain("x"), scalar(r))
	default:
		*s.node() = scalar(r)
	}
}

// nudge changes a number a little, or puts another word in the place of one: most
// specs stay valid.
func nudge(m *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, isScalar)
	if !ok {
		return
	}
	n := *s.node()
	x, err := strconv.ParseInt(n.Value, 10, 64)
	switch {
	case err == nil:
		to := []int64{x + 1, x - 1, 2 * x, x / 2, 0, 1, 2, 3, -x, 10 * x, x + 1<<16, 1000 * x}
		*s.node() = plain(strconv.FormatInt(to[r.IntN(len(to))], 10))
	case n.Value == "true", n.Value == "false":
		*s.node() = plain(map[string]string{"true": "false", "false": "true"}[n.Value])
	default: // of the same key of another tree, or any of this one
		from := root
		if len(m.donors) > 0 && r.IntN(3) > 0 {
			from = m.donors[r.IntN(len(m.donors))]
		}
		name := s.name()
		if o, ok := pick(r, from, func(o slot) bool { return isScalar(o) && (from == root || o.name() == name) }); ok {
			*s.node() = copyOf(*o.node())
		}
	}
}

// swap exchanges two nodes, wherever they are.
func swap(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	a, ok := pick(r, root, anywhere)
	b, too := pick(r, root, anywhere)
	if !ok || !too || holds(*a.node(), *b.node()) || holds(*b.node(), *a.node()) {
		return
	}
	*a.node(), *b.node() = *b.node(), *a.node()
}

// swapBeside exchanges two items of a list, or two values of a mapping.
func swapBeside(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	a, ok := pick(r, root, isValue)
	if !ok {
		return
	}
	if b, ok := pick(r, root, func(s slot) bool { return s.of == a.of && !s.key }); ok {
		*a.node(), *b.node() = *b.node(), *a.node()
	}
}

// donor is a place of any tree that keep allows.
func (m *Mutator) donor(r *rand.Rand, keep func(s slot) bool) (slot, bool) {
	if len(m.donors) == 0 {
		return slot{}, false
	}
	return pick(r, m.donors[r.IntN(len(m.donors))], keep)
}

// graft puts a part of another tree in the place of a node, or beside it.
func graft(m *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, isValue)
	d, too := m.donor(r, isValue)
	if !ok || !too {
		return
	}
	part := []*yaml.Node{copyOf(*d.node())}
	switch {
	case r.IntN(2) == 0:
		*s.node() = part[0]
		return
	case s.of.Kind != yaml.MappingNode:
	case d.of.Kind == yaml.MappingNode:
		part = []*yaml.Node{copyOf(d.of.Content[d.i-1]), part[0]}
	default:
		part = []*yaml.Node{plain(m.keys[r.IntN(len(m.keys))]), part[0]}
	}
	s.of.Content = slices.Insert(s.of.Content, s.i+1, part...)
}

// graftAlike puts the value that a key has in another tree in the place of its
// own, or gives a mapping a key that one of another tree with the same has.
func graftAlike(m *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, func(s slot) bool { return s.key })
	if !ok {
		return
	}
	name := (*s.node()).Value
	d, ok := m.donor(r, func(d slot) bool { return d.key && (*d.node()).Value == name })
	if !ok {
		return
	}
	if r.IntN(2) == 0 {
		s.of.Content[s.i+1] = copyOf(d.of.Content[d.i+1])
		return
	}
	i := r.IntN(len(d.of.Content)/2) * 2
	s.of.Content = append(s.of.Content, copyOf(d.of.Content[i]), copyOf(d.of.Content[i+1]))
}

// rename gives a key another name that some key has.
func rename(m *Mutator, r *rand.Rand, root *yaml.Node) {
	if s, ok := pick(r, root, func(s slot) bool { return s.key }); ok && len(m.keys) > 0 {
		*s.node() = plain(m.keys[r.IntN(len(m.keys))])
	}
}

// wrap puts a node in a list or a mapping.
func wrap(m *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, anywhere)
	if !ok {
		return
	}
	n := *s.node()
	switch r.IntN(3) {
	case 0:
		*s.node() = seq(n)
	case 1:
		*s.node() = seq(n, copyOf(n))
	default:
		if len(m.keys) > 0 {
			*s.node() = mapping(plain(m.keys[r.IntN(len(m.keys))]), n)
		}
	}
}

// alias makes an anchor of a node and aliases of others behind it, which may be in
// it.
func alias(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	a, ok := pick(r, root, func(s slot) bool { return (*s.node()).Kind != yaml.AliasNode })
	if !ok {
		return
	}
	n := *a.node()
	n.Anchor = "a" + strconv.Itoa(r.IntN(3))
	for range 1 + r.IntN(3) {
		all := slotsOf(root)
		at := slices.IndexFunc(all, func(s slot) bool { return *s.node() == n })
		if behind := all[at+1:]; len(behind) > 0 {
			*behind[r.IntN(len(behind))].node() = &yaml.Node{Kind: yaml.AliasNode, Value: n.Anchor, Alias: n}
		}
	}
}

// long makes a text very long.
func long(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, func(s slot) bool { return (*s.node()).Kind == yaml.ScalarNode })
	if !ok {
		return
	}
	unit := []string{"x", "0", "9", "a.", "[0]", "(", "-", "${1}", "${", "x ", "é", "not "}[r.IntN(12)]
	text := strings.Repeat(unit, []int{50, 1000, 50_000}[r.IntN(3)]/len(unit))
	switch r.IntN(3) {
	case 0:
		text = (*s.node()).Value + text
	case 1:
		text = "${" + text + "}"
	}
	*s.node() = plain(text)
}

// deep nests a node in lists and mappings.
func deep(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, isValue)
	if !ok {
		return
	}
	n, kind := *s.node(), r.IntN(3)
	for range []int{5, 30, 90, 400}[r.IntN(4)] {
		switch kind {
		case 0:
			n = seq(n)
		case 1:
			n = mapping(plain("layers"), n)
		default:
			n = seq(mapping(plain("layers"), n))
		}
	}
	*s.node() = n
}

// expressions are such that mean something in some place.
var expressions = []string{
	"${x}", "${i}", "${batch}", "${x.shape}", "${x.shape[0]}", "${x.shape[-1] // 2}", "${1}", "${0}", "${-1}", "${1 / 0}", "${2 ** 62}", "${1 << 62}", "${[]}", "${[1, 2]}", "${[0] * 10}", "${range(5)}",
	"${range(100000)}", "${null}", "${true}", "${1.5}", "${'x'}", "${'x' * 100}", "${len(x)}", "${x[0]}", "${x == x}", "${1 if x else 0}", "${x.dim()}", "${min([])}", "${max(1, 2)}",
	"${[i for i in range(3)]}", "${sum([1, 2])}", "${int('9')}", "${9223372036854775807 + 1}", "${-9223372036854775807 - 2}", "${1 % 0}", "${1e308 * 10}", "a${1}b", "${a}${b}", "${self}", "${(1,)}",
}

// expression makes an expression of a scalar, often one around it.
func expression(_ *Mutator, r *rand.Rand, root *yaml.Node) {
	s, ok := pick(r, root, isScalar)
	if !ok {
		return
	}
	n := *s.node()
	if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil && r.IntN(2) == 0 {
		*s.node() = quoted("${" + n.Value + []string{" + 1", " - 1", " * 2", " // 3", " * 1.0", ""}[r.IntN(6)] + "}")
		return
	}
	*s.node() = quoted(expressions[r.IntN(len(expressions))])
}
