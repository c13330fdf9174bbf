package spec

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits on what a file may hold; they stop alias bombs and hostile nesting.
const (
	maxFileBytes = 4 << 20
	maxNodes     = 200_000
	maxDepth     = 100
)

// reader turns yaml.v3's nodes into Values.
type reader struct {
	errs  *Errors
	nodes int
	stack map[*yaml.Node]bool // aliases being expanded
	alias Span                // of the outermost of them
	over  bool                // a limit was exceeded
	plain bool                // the file is no spec: there are no expressions, and any key and number
}

// readYAML parses text that holds exactly one YAML document.
func readYAML(text []byte, errs *Errors) *Value {
	v, kept := readKept(text, errs)
	if kept {
		v = v.clone()
	}
	return v
}

// ownLevels are the levels of such a text that are copied: model, blocks, the blocks' names.
const ownLevels = 3

// readOwn is readYAML of a text that comes with memplan. What is put together of such
// files are their blocks: what is below is not copied.
func readOwn(text []byte, errs *Errors) (v *Value, kept bool) {
	if v, kept = readKept(text, errs); kept {
		v = v.upper(ownLevels)
	}
	return v, kept
}

// OwnParams are the params of a text that comes with memplan, with their defaults; nil if it
// has none. They are not to be changed.
func OwnParams(text []byte) *Value {
	v, _ := readKept(text, &Errors{})
	return v.Get("params")
}

// readKept parses a text, or finds what it was read as before; kept says that this must not
// be changed.
func readKept(text []byte, errs *Errors) (v *Value, kept bool) {
	if v := known.get(text); v != nil {
		return v, true
	}
	before := len(errs.List)
	v = (&reader{errs: errs}).read(text)
	if v == nil || len(errs.List) > before {
		return v, false
	}
	return v, known.put(text, v)
}

// read parses a text; without a document, or beyond the limits, there is no value.
func (r *reader) read(text []byte) *Value {
	doc := decodeYAML(text, r.errs)
	if doc == nil {
		return nil
	}
	if len(doc.Content) == 0 {
		r.errs.Addf(Span{Pos: Pos{1, 1}}, "file is empty")
		return nil
	}
	r.stack = map[*yaml.Node]bool{}
	v := r.value(doc.Content[0], 0)
	if r.over {
		return nil
	}
	return v
}

// decodeYAML is the document in a text, nil if there is none.
func decodeYAML(text []byte, errs *Errors) *yaml.Node {
	if len(text) > maxFileBytes {
		errs.Addf(Span{Pos: Pos{1, 1}}, "file of %d bytes is larger than the limit of %d", len(text), maxFileBytes)
		return nil
	}
	if !utf8.Valid(text) {
		errs.Addf(Span{Pos: Pos{1, 1}}, "file is not valid UTF-8")
		return nil
	}
	if at, c := controlIn(string(text)); c != 0 {
		errs.Addf(at, "control character %U; allowed are printable characters", c)
		return nil
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if err.Error() == "EOF" {
			errs.Addf(Span{Pos: Pos{1, 1}}, "file is empty")
			return nil
		}
		if !errs.addJSON(text) {
			errs.addYAML(err)
		}
		return nil
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		line := max(second.Line, 1)
		errs.Addf(Span{Pos: Pos{line, max(second.Column, 1)}}, "a second YAML document; a spec is one document")
	} else if err.Error() != "EOF" {
		errs.addYAML(err)
	}
	return &doc
}

// documents are texts that were read without a mistake: a search reads the same for
// each job. They are not changed.
type documents struct {
	mu     sync.Mutex
	known  map[string]*Value
	blocks map[string]*Spec // files of blocks that come with memplan, by their texts

	entries map[*Value][]*Entry // of lists in texts that come with memplan, by their first items
}

var known documents

// The texts that are kept: a spec, its preset, those that a preset shares with others.
// What the command line sets is too short to be worth it.
const (
	maxDocuments     = 32
	minDocumentBytes = 1 << 8
	maxDocumentBytes = 1 << 16
)

func (d *documents) get(text []byte) *Value {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[string(text)]
}

// put reports whether the text is kept.
func (d *documents) put(text []byte, v *Value) bool {
	if len(text) < minDocumentBytes || len(text) > maxDocumentBytes {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= maxDocuments {
		d.known, d.blocks, d.entries = map[string]*Value{}, map[string]*Spec{}, map[*Value][]*Entry{}
	}
	d.known[string(text)] = v
	return true
}

// entriesOf finds entries that were decoded before: they do not depend on params.
func (d *documents) entriesOf(list *Value) []*Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[list.Items[0]]
}

// keepEntries keeps the entries of a list in a text that is kept.
func (d *documents) keepEntries(list *Value, entries []*Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[list.Items[0]] = entries
}

// file finds a file of blocks that was decoded before.
func (d *documents) file(text []byte, path string) *Spec {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.blocks[string(text)]; s != nil && s.Path == path {
		return s.again()
	}
	return nil
}

// keep keeps a file of blocks, which has no params, of which the text is kept.
func (d *documents) keep(text []byte, s *Spec) {
	if s.Model == nil || s.Params != nil || len(s.Errs.List) > 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[string(text)] != nil {
		d.blocks[string(text)] = s.again()
	}
}

// again is a file of blocks for another job, which names it the owner of its blocks and
// has mistakes of its own. What is below the blocks is not copied, as it is not changed.
func (s *Spec) again() *Spec {
	out, errs, m := *s, *s.Errs, *s.Model
	m.Blocks = make([]*Named[Block], len(s.Model.Blocks))
	for i, b := range s.Model.Blocks {
		block := *b.V
		block.Of = nil
		m.Blocks[i] = &Named[Block]{b.Name, &block}
	}
	out.Errs, out.Model, out.root = &errs, &m, s.root.upper(ownLevels)
	return &out
}

// controlIn finds the first control character of a text but line ends and tabs.
func controlIn(text string) (Span, rune) {
	line, col := 1, 1
	for _, c := range text {
		switch {
		case c == '\n':
			line, col = line+1, 1
			continue
		case steers(c) && c != '\r' && c != '\u0085':
			return Span{Pos: Pos{line, col}}, c
		}
		col++
	}
	return Span{}, 0
}

// steers reports control characters: a terminal that prints one obeys it.
func steers(c rune) bool { return unicode.IsControl(c) && c != '\t' && c != '\n' }

var (
	yamlLine      = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	parserError   = regexp.MustCompile(`^did not find expected (node content|'-' indicator|key|',' or|<)`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

// addJSON reports a syntax error of a file that is called JSON; it is false of
// others.
func (e *Errors) addJSON(text []byte) bool {
	if name, _, _ := strings.Cut(e.File, " "); !strings.HasSuffix(name, ".json") {
		return false
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(any)); !errors.As(err, &syntax) {
		return false
	}
	read := string(text[:min(int(syntax.Offset), len(text))])
	what := syntax.Error()
	if syntax.Offset >= int64(len(text)) { // it ends too early
		read = strings.TrimRight(string(text), " \t\r\n")
		what = "the file ends before its JSON does; was it cut off?"
	}
	line := strings.Count(read, "\n") + 1
	e.Addf(Span{Pos: Pos{line, max(1, utf8.RuneCountInString(read[strings.LastIndexByte(read, '\n')+1:]))}}, "not valid JSON: %s", what)
	return true
}

// addYAML reports a syntax error of the YAML library, which knows lines only.
func (e *Errors) addYAML(err error) {
	m := yamlLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	line, msg := 1, err.Error()
	if m != nil {
		msg = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		if parserError.MatchString(msg) { // these it counts from 0
			if m[1] == "" {
				line = 0
			}
			line++
		}
		if a := unknownAnchor.FindStringSubmatch(msg); a != nil {
			for i, l := range e.Lines {
				if k := strings.Index(l, "*"+a[1]); k >= 0 {
					e.Addf(Span{Pos: Pos{i + 1, utf8.RuneCountInString(l[:k]) + 1}, Len: len(a[1]) + 1}, "not valid YAML: no anchor &%s comes before", a[1])
					return
				}
			}
		}
	}
	col := 1
	if line <= len(e.Lines) {
		col = 1 + len(e.Lines[line-1]) - len(strings.TrimLeft(e.Lines[line-1], " \t"))
	}
	if line <= len(e.Lines) {
		msg = reworded(msg, e.Lines[line-1])
	}
	e.Addf(Span{Pos: Pos{line, col}}, "not valid YAML: %s", msg)
}

// reworded says what a message of the YAML library is about where it is a slip
// of indentation, its most common cause.
func reworded(msg, line string) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	switch {
	case msg == "found character that cannot start any token" && strings.Contains(indent, "\t"):
		return "the line is indented with a tab; YAML is indented with spaces"
	case msg == "mapping values are not allowed in this context", msg == "did not find expected key":
		return msg + "; is the line indented like the lines around it?"
	}
	return msg
}

func (r *reader) value(n *yaml.Node, depth int) *Value {
	r.nodes++
	v := &Value{Span: Span{Pos: Pos{max(n.Line, 1), max(n.Column, 1)}, Len: utf8.RuneCountInString(n.Value)}}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		v.Len += 2
	}
	switch {
	case r.over:
		return v
	case depth > maxDepth:
		r.limit(v.Span, "nested deeper than %d levels", maxDepth)
		return v
	case r.nodes > maxNodes:
		r.limit(v.Span, "more than %d values; do aliases repeat each other?", maxNodes)
		return v
	}
	switch n.Kind {
	case yaml.AliasNode:
		if r.stack[n.Alias] {
			r.errs.Addf(v.Span, "alias *%s contains itself", n.Value)
			return v
		}
		if len(r.stack) == 0 {
			r.alias = v.Span
		}
		r.stack[n.Alias] = true
		defer delete(r.stack, n.Alias)
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		v.Kind = List
		v.Len = 1
		for _, c := range n.Content {
			v.Items = append(v.Items, r.value(c, depth+1))
			if r.over {
				break
			}
		}
	case yaml.MappingNode:
		v.Kind = Map
		v.Len = 1
		r.mapping(v, n, depth)
	case yaml.ScalarNode:
		if i := strings.IndexFunc(n.Value, steers); i >= 0 { // of an escape
			c, _ := utf8.DecodeRuneInString(n.Value[i:])
			r.errs.Addf(v.Span, "a string with the control character %U; allowed are printable characters", c)
		}
		r.scalar(v, n)
	default:
		r.errs.Addf(v.Span, "unexpected YAML node")
	}
	return v
}

// mergeKey and extension are keys with a meaning of their own: <<: *defaults takes
// the keys of other mappings, and what stands under x-NAME is not read, but for the
// anchors in it.
const (
	mergeKey  = "<<"
	extension = "x-"
)

// mapping reads the pairs of a mapping.
func (r *reader) mapping(v *Value, n *yaml.Node, depth int) {
	given := map[string]int{} // places in v.Pairs
	var merged *Value
	for i := 0; i+1 < len(n.Content) && !r.over; i += 2 {
		k, plain := r.value(n.Content[i], depth+1), n.Content[i].Style == 0
		if bare := strings.TrimSuffix(k.Str, ":"); bare != k.Str && plain && n.Content[i+1].Value == "" && n.Content[i+1].Kind == yaml.ScalarNode {
			k.Str = bare // {ReLU:} is {ReLU: } in YAML 1.2; the library keeps the colon
		}
		_, twice := given[k.Str]
		switch {
		case n.Content[i].Kind != yaml.ScalarNode:
			r.errs.Addf(k.Span, "a key must be a plain word")
			continue
		case strings.HasPrefix(k.Str, extension) && !r.plain:
			continue
		case k.Str == mergeKey && plain && merged != nil:
			r.errs.Addf(k.Span, "a mapping has one merge key; for several mappings write <<: [*a, *b]")
			continue
		case k.Str == mergeKey && plain:
			merged = r.value(n.Content[i+1], depth+1)
			continue
		case twice:
			r.errs.Addf(k.Span, "key %q occurs twice in this mapping", k.Str)
			continue
		}
		given[k.Str] = len(v.Pairs)
		k.Kind, k.expr = Str, nil
		v.Pairs = append(v.Pairs, Pair{k, r.value(n.Content[i+1], depth+1)})
	}
	if merged != nil && !r.over {
		r.merge(v, given, merged)
	}
}

// merge takes over the pairs of a mapping, or of several of which the first wins.
// They stand in front, with the values that v itself gives.
func (r *reader) merge(v *Value, given map[string]int, from *Value) {
	var pairs []Pair
	seen := map[string]bool{}
	for _, m := range listOf(from) {
		if m.Kind != Map {
			r.errs.Addf(m.Span, "a merge key (<<) takes a mapping or a list of mappings, such as *defaults; not %s", m.Describe())
			return
		}
		for _, p := range m.Pairs {
			if seen[p.Key.Str] {
				continue
			}
			seen[p.Key.Str] = true
			if i, ok := given[p.Key.Str]; ok {
				p = v.Pairs[i]
			}
			pairs = append(pairs, p)
		}
	}
	for _, p := range v.Pairs {
		if !seen[p.Key.Str] {
			pairs = append(pairs, p)
		}
	}
	v.Pairs = pairs
}

// limit reports that the file is too large, at the alias that makes it so if
// there is one, and ends reading.
func (r *reader) limit(s Span, format string, args ...any) {
	if len(r.stack) > 0 {
		s = r.alias
	}
	r.errs.Addf(s, format, args...)
	r.over = true
}

var (
	intRE   = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)
	floatRE = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	// oldIntRE are integers of YAML 1.1 that 1.2's core schema writes in another way:
	// 032 is 26.
	oldIntRE = regexp.MustCompile(`^[-+]?(0[0-7_]+|[1-9][0-9_]*_[0-9_]*|0b[01_]+|0x[0-9a-fA-F_]+)$`)

	badNum = regexp.MustCompile(`^[-+]?(0[0-9]+|[0-9][0-9_]*_[0-9_]*|0[xob][0-9a-fA-F_]+)$`)
	infRE  = regexp.MustCompile(`(?i)^([-+]?\.inf|-inf|[-+]?(math|np|torch)\.inf|[-+]?float\(["'][-+]?inf(inity)?["']\))$`)
)

// oldBase is the base of an integer of YAML 1.1.
func oldBase(s string) int {
	switch s = strings.TrimLeft(s, "+-"); {
	case s[0] != '0':
		return 10
	case strings.ContainsAny(s, "bx"):
		return 0
	}
	return 8
}

// isInfinity reports whether a scalar is infinity, as YAML or Python writes it.
func isInfinity(s string) bool {
	return strings.Contains(strings.ToLower(s), "inf") && infRE.MatchString(s)
}

// bad reports a mistake in a scalar, whose value is then unknown.
func (r *reader) bad(v *Value, s Span, format string, args ...any) {
	r.errs.Addf(s, format, args...)
	v.expr = &template{bad: true}
}

// scalar gives a scalar its type by the core schema of YAML 1.2. Spellings
// that YAML libraries disagree on (08, 1_000, 0x10, yes) are refused or plain
// strings; in a file that is no spec, integers are those of YAML 1.1, which Python's
// yaml reads.
func (r *reader) scalar(v *Value, n *yaml.Node) {
	v.Str = n.Value
	v.Kind = Str
	if n.Tag != "" && n.Style&yaml.TaggedStyle != 0 {
		r.bad(v, v.Span, "YAML tags (%s) are not part of the language", n.Tag)
		return
	}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		switch n.Value {
		case "", "~", "null", "Null", "NULL":
			v.Kind = Null
			return
		case "true", "True", "TRUE":
			v.Kind, v.Bool = Bool, true
			return
		case "false", "False", "FALSE":
			v.Kind = Bool
			return
		}
		switch {
		case r.plain && isInfinity(n.Value):
			return
		case r.plain && oldIntRE.MatchString(n.Value):
			if i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), oldBase(n.Value), 64); err == nil {
				v.Kind, v.Int = Int, i
			}
			return
		case r.plain && badNum.MatchString(n.Value):
			return
		case isInfinity(n.Value):
			r.bad(v, v.Span, "infinity is no value of a spec; write -1.0e9, or -6.0e4 for float16, which takes the same memory")
			return
		case !strings.Contains("+-.0123456789", n.Value[:1]): // no number
		case intRE.MatchString(n.Value):
			i, err := strconv.ParseInt(n.Value, 10, 64)
			if err != nil {
				r.bad(v, v.Span, "integer %s does not fit 64 bits", n.Value)
				return
			}
			v.Kind, v.Int = Int, i
			return
		case badNum.MatchString(n.Value):
			r.bad(v, v.Span, "%s is not a plain decimal number; write it without leading zeros, underscores or prefixes, or quote it", n.Value)
			return
		case floatRE.MatchString(n.Value):
			f, err := strconv.ParseFloat(n.Value, 64)
			if err != nil || math.IsInf(f, 0) {
				r.bad(v, v.Span, "number %s is out of range", n.Value)
				return
			}
			v.Kind, v.Float = Float, f
			return
		}
	}
	if strings.Contains(n.Value, "${") && !r.plain {
		off := 0
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			off = 1
		}
		block := n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
		t, d := parseTemplate(n.Value)
		if d != nil {
			s := v.Span
			if !block {
				s.Col, s.Len = v.Col+off+d.Col, d.Len
			}
			r.bad(v, s, "%s", d.Msg)
			return
		}
		t.col, t.inline = v.Col+off, !block
		v.expr = t
	}
}
