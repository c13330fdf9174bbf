// Package inductor reads the code that torch.compile writes around its kernels, as
// TORCH_LOGS=output_code prints it: which memory each compiled graph allocates, uses
// again, frees and returns.
package inductor

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Graph is a compiled graph.
type Graph struct {
	Name    string       // its AOT ID, such as 0_forward; "" if the code says none
	Line    int          // of its call, in the file
	Peak    tensor.Bytes // the most that it holds of what it allocated
	Returns tensor.Bytes // what it allocated and hands on
	Allocs  int
	Given   tensor.Bytes // of its inputs, as its benchmark makes them

	Frame, Version int  // of the code that Dynamo compiled, and how often it had before; -1 where the log does not say
	Symbolic       bool // sizes are not numbers: what it allocates depends on its inputs
	Inputs         []Input
	Code           []Line
}

// How the names of graphs end that are compiled for training.
const (
	forwardSuffix  = "_forward"
	backwardSuffix = "_backward"
)

// Forward reports whether the graph is of a forward pass that has a backward pass.
func (g *Graph) Forward() bool { return strings.HasSuffix(g.Name, forwardSuffix) }

// Backward reports whether the graph is of a backward pass.
func (g *Graph) Backward() bool { return strings.HasSuffix(g.Name, backwardSuffix) }

// BackwardOf is the graph of a graph's backward pass, nil if the graphs have none.
func BackwardOf(graphs []*Graph, forward *Graph) *Graph {
	id, ok := strings.CutSuffix(forward.Name, forwardSuffix)
	if !ok {
		return nil
	}
	for _, g := range graphs {
		if g.Name == id+backwardSuffix {
			return g
		}
	}
	return nil
}

// Error is what is wrong in a line of a file.
type Error struct {
	File string
	Line int
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// What a file may have at most.
const (
	maxLine   = 1 << 20
	maxLines  = 2_000_000
	maxNames  = 200_000 // of one graph
	maxGraphs = 10_000
)

var (
	aotID    = regexp.MustCompile(`# AOT ID: \['([A-Za-z0-9_]+)'\]`)
	callDef  = regexp.MustCompile(`^def call\((?:self, )?args\):`)
	allocate = regexp.MustCompile(`^(\w+) = empty_strided_(?:cuda|p2p|cpu|cpu_pinned)?\(\((.*?)\), \((.*?)\), torch\.(\w+)`)
	emptied  = regexp.MustCompile(`^(\w+) = empty_strided\(\((.*?)\), \((.*?)\), device='cuda.*dtype=torch\.(\w+)`)
	handed   = regexp.MustCompile(`^(\w+) = (?:reinterpret_tensor\(|as_strided\()?(\w+)(?:\[\d+\])?(?:,.*\))?(?:; del (\w+))?(?:  # .*)?$`)
	fallback = regexp.MustCompile(`^(\w+) = (torch\.ops\.[\w.]+|extern_kernels\.\w+|aten\.[\w.]+)\((.*)$`)
	sizeOf   = regexp.MustCompile(`^assert_(?:size_stride|tensor_metadata)\((\w+), \((.*?)\), \((.*?)\)(?:, torch\.(\w+))?`)
	random   = regexp.MustCompile(`^(\w+) = rand_strided\(\((.*?)\), \((.*?)\), device='.*?', dtype=torch\.(\w+)`)
	deleted  = regexp.MustCompile(`^del (\w+(?:, \w+)*)$`)
	word     = regexp.MustCompile(`\b[A-Za-z_]\w*\b`)
	logged   = regexp.MustCompile(`^[VIDWE]\d{4} .*?\[__output_code\] ?`)
	compiled = regexp.MustCompile(`\[(\d+)/(\d+)(?:_\d+)?\] \[__output_code\]`)
)

// storage is what names refer to.
type storage struct {
	bytes tensor.Bytes
	refs  int
	own   bool // the graph allocated it
	sized bool // its bytes are known
	dtype string
}

// reader reads one file.
type reader struct {
	file   string
	line   int
	graphs []*Graph
	name   string // AOT ID that was read last
	frame  []string

	// Of the graph at hand. Its inputs are made after its call, by what benchmarks it.
	g        *Graph
	lines    []statement
	returned bool
	inputs   map[string]string // types
	names    map[string]*storage
	live     tensor.Bytes
}

// statement is a line of a call.
type statement struct {
	line int
	text string
}

// Read reads the graphs of a log, in order; file is its name in errors.
func Read(file string, in io.Reader) (graphs []*Graph, err error) {
	r := &reader{file: file}
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), maxLine)
	defer func() {
		if e, ok := recover().(*Error); ok {
			graphs, err = nil, e
		}
	}()
	for s.Scan() {
		if r.line++; r.line > maxLines {
			r.fail("more than %d lines", maxLines)
		}
		if m := compiled.FindStringSubmatch(s.Text()); m != nil {
			r.frame = m[1:]
		}
		r.read(strings.TrimSpace(logged.ReplaceAllString(s.Text(), "")))
	}
	if err := s.Err(); err != nil {
		r.line++
		return nil, &Error{file, r.line, err.Error()}
	}
	r.end()
	if len(r.graphs) == 0 {
		r.line = max(r.line, 1)
		r.fail("no compiled graph; run with TORCH_LOGS=output_code and keep what it prints (def call(args): ...)")
	}
	return r.graphs, nil
}

func (r *reader) fail(format string, args ...any) {
	panic(&Error{r.file, r.line, fmt.Sprintf(format, args...)})
}

func (r *reader) read(s string) {
	switch m := aotID.FindStringSubmatch(s); {
	case m != nil:
		r.name = m[1]
	case callDef.MatchString(s):
		r.end()
		if len(r.graphs) == maxGraphs {
			r.fail("more than %d graphs", maxGraphs)
		}
		r.g, r.returned = &Graph{Name: r.name, Line: r.line, Frame: -1, Version: -1}, false
		if r.frame != nil {
			r.g.Frame, _ = strconv.Atoi(r.frame[0])
			r.g.Version, _ = strconv.Atoi(r.frame[1])
		}
		r.lines, r.inputs, r.names, r.live, r.name = nil, map[string]string{}, map[string]*storage{}, 0, ""
	case r.g != nil && !r.returned:
		r.lines = append(r.lines, statement{r.line, s})
		r.returned = s == "return" || strings.HasPrefix(s, "return ")
	case r.g != nil:
		if m := random.FindStringSubmatch(s); m != nil {
			if len(r.inputs) > maxNames {
				r.fail("more than %d inputs", maxNames)
			}
			r.inputs[m[1]] = m[4]
			r.g.Given += r.bytes(m[2], m[3], m[4]) // of dynamic sizes, those of the first call
		}
	}
}

// end plays the graph at hand.
func (r *reader) end() {
	if r.g == nil {
		return
	}
	if !r.returned {
		r.fail("the graph of line %d ends without a return", r.g.Line)
	}
	at := r.line
	for _, l := range r.lines {
		r.line = l.line
		r.statement(l.text)
	}
	if r.g.Symbolic {
		r.g.Peak, r.g.Returns = 0, 0
	}
	r.code()
	r.line = at
	r.graphs = append(r.graphs, r.g)
	r.g = nil
}

// statement plays a line of a call.
func (r *reader) statement(s string) {
	if at := strings.Index(s, "; del "); at >= 0 { // x = y; del y  # reuse
		r.assign(s[:at])
		rest, _, _ := strings.Cut(s[at+len("; "):], "#")
		r.statement(strings.TrimSpace(rest))
		return
	}
	switch m := deleted.FindStringSubmatch(s); {
	case m != nil:
		for _, n := range strings.Split(m[1], ", ") {
			r.drop(n)
		}
	case strings.HasPrefix(s, "return"):
		r.finish(s)
	default:
		r.assign(s)
	}
}

func (r *reader) assign(s string) {
	m := allocate.FindStringSubmatch(s)
	if m == nil {
		m = emptied.FindStringSubmatch(s)
	}
	if m != nil {
		r.bind(m[1], &storage{bytes: r.bytes(m[2], m[3], m[4]), own: true, sized: true, dtype: m[4]})
		r.hold(r.names[m[1]])
		return
	}
	if m := sizeOf.FindStringSubmatch(s); m != nil {
		r.sized(m)
		return
	}
	if m := fallback.FindStringSubmatch(s); m != nil {
		r.bind(m[1], &storage{own: true, dtype: r.operand(m[3])})
		return
	}
	if m := handed.FindStringSubmatch(s); m != nil {
		of := r.names[m[2]]
		switch {
		case of == nil: // of an input, a number, a stream
		case strings.Contains(s, "["): // one of several results
			r.bind(m[1], &storage{own: of.own, dtype: of.dtype})
		default:
			r.bind(m[1], of)
		}
	}
}

// operand is the type of the first operand whose type is known.
func (r *reader) operand(args string) string {
	for _, n := range word.FindAllString(args, 64) {
		if s := r.names[n]; s != nil && s.dtype != "" {
			return s.dtype
		}
		if d := r.inputs[n]; d != "" {
			return d
		}
	}
	return ""
}

// sized reads the size of what an operator returned, and since 2.14 its type; that of
// its first operand else.
func (r *reader) sized(m []string) {
	s := r.names[m[1]]
	if s == nil || !s.own || s.sized {
		return
	}
	if m[4] != "" {
		s.dtype = m[4]
	}
	if s.dtype == "" {
		r.fail("the type of %s is not said", m[1])
	}
	s.bytes, s.sized = r.bytes(m[2], m[3], s.dtype), true
	r.hold(s)
}

func (r *reader) hold(s *storage) {
	r.g.Allocs++
	r.live += s.bytes
	r.g.Peak = max(r.g.Peak, r.live)
}

func (r *reader) bind(name string, s *storage) {
	if len(r.names) > maxNames {
		r.fail("more than %d names", maxNames)
	}
	s.refs++
	r.drop(name)
	r.names[name] = s
}

func (r *reader) drop(name string) {
	s := r.names[name]
	if s == nil {
		return
	}
	delete(r.names, name)
	if s.refs--; s.refs == 0 && s.own && s.sized {
		r.live -= s.bytes
	}
}

// finish ends a graph: what it returns lives on.
func (r *reader) finish(s string) {
	seen := map[*storage]bool{}
	for _, n := range word.FindAllString(s, maxNames) {
		if t := r.names[n]; t != nil && t.own && !seen[t] {
			seen[t] = true
			r.g.Returns += t.bytes
		}
	}
}

// bytes is what a tensor of these sizes and strides takes.
func (r *reader) bytes(sizes, strides, dtype string) tensor.Bytes {
	d, err := tensor.ParseDType(dtype)
	if err != nil {
		r.fail("%v", err)
	}
	size, stride := r.numbers(sizes), r.numbers(strides)
	if len(size) != len(stride) {
		r.fail("%d sizes and %d strides", len(size), len(stride))
	}
	n := int64(1)
	for i := range size {
		if size[i] == 0 {
			return 0
		}
		if size[i]-1 > 0 && stride[i] > (1<<50)/(size[i]-1) || n > 1<<50 {
			r.fail("a tensor of sizes (%s) is too large", sizes)
		}
		n += (size[i] - 1) * stride[i]
	}
	return tensor.Bytes(n * d.Size())
}

func (r *reader) numbers(s string) (out []int64) {
	for _, f := range strings.Split(s, ",") {
		if f = strings.TrimSpace(f); f == "" {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil || n < 0 {
			r.g.Symbolic = true
			n = 0
		}
		out = append(out, n)
	}
	return out
}
