package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// Magic begins each recording, behind gzip.
const Magic = `["memplan"`

// maxText is what a recording may be when it is unpacked.
const maxText = 512 << 20

// lineBytes is what a byte of a line comes to when it is read.
const lineBytes = 6

// Recording is what was recorded of a script.
type Recording struct {
	Head
	Lines    []Line
	Strings  []string
	Metas    []Meta
	Frames   []Frame
	Storages []Storage
	Schemas  []*Schema
}

// Head is what a recording says of itself.
type Head struct {
	Torch        string           `json:"torch"`
	CUDABuild    bool             `json:"cuda_build"`
	Python       string           `json:"python"`
	Transformers string           `json:"transformers"`
	GPU          GPU              `json:"gpu"`
	Argv         []string         `json:"argv"`
	Steps        int              `json:"steps"`
	Batch        map[string]int64 `json:"batch"`
	Answers      map[string]any   `json:"answers"`
	AllocConf    string           `json:"alloc_conf"`
	Real         bool             `json:"real"` // on a GPU, with the allocator's own history
}

// GPU is the device that was pretended.
type GPU struct {
	Key    string       `json:"key"` // its name in memplan's table
	Name   string       `json:"name"`
	Arch   string       `json:"arch"`
	SMs    int          `json:"sms"`
	Memory tensor.Bytes `json:"memory"`
}

// Kind is what a line says.
type Kind uint8

// The kinds of lines.
const (
	Made    Kind = iota // a storage was made
	Op                  // an operator was called
	Freed               // a storage is gone
	Enter               // a module's forward began
	Leave               // and ended
	Phase               // a phase began
	Mark                // something that is no operator
	Asked               // a value was read back, and answered
	Doubt               // something could not be pretended
	End                 // the recording ended
	Alloc               // the allocator's own history: an allocation
	Dealloc             // and a free
)

// Line is one line of a recording.
type Line struct {
	Kind    Kind
	N       int    // the storage, schema, string or number of the step
	Class   string // of a module
	Name    string // of a phase, mark, ...
	Text    string
	Args    []any // of an operator, by position
	Kwargs  map[string]any
	Outs    []any
	Stream  int
	Cast    string // the type of autocast; "" outside of it
	Back    bool   // in the thread of the backward pass
	Frame   int    // -1: none
	Address int64
	Bytes   tensor.Bytes
}

// Storage is a storage as it was made.
type Storage struct {
	CUDA   bool
	Bytes  tensor.Bytes
	Origin string
}

// Meta is the type and the layout of tensors.
type Meta struct {
	Layout tensor.Layout
	DType  tensor.DType
	Known  bool // the type and the number of dimensions are memplan's
}

// Frame is a place of the script.
type Frame struct {
	File     string
	Line     int
	Function string
}

// Ref is a tensor in the arguments or results of an operator.
type Ref struct {
	Storage, Meta int
	Offset        int64
	Flags         int
}

// Nowhere is the storage of a tensor that has none, or one that was not followed: a sparse one.
const Nowhere = -1

// The flags of a Ref.
const (
	RequiresGrad = 1 << iota
	Parameter
)

// Named is a value that stands for a type, a device, ...
type Named struct{ Kind, Name string }

// ReadError says in which line of a recording something is wrong.
type ReadError struct {
	Line int
	Msg  string
}

func (e *ReadError) Error() string { return fmt.Sprintf("recording, line %d: %s", e.Line, e.Msg) }

// Is reports whether a file is a recording.
func Is(data []byte) bool {
	if bytes.HasPrefix(data, []byte(Magic)) {
		return true
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return false
	}
	head := make([]byte, len(Magic))
	_, err = io.ReadFull(z, head)
	return err == nil && string(head) == Magic
}

// Read reads a file of recordings: of one run of a script, or of several with other sizes
// of the batch. What it holds m counts.
func Read(data []byte, m *limit.Meter) ([]*Recording, error) {
	var src io.Reader = bytes.NewReader(data)
	if !bytes.HasPrefix(data, []byte(Magic)) {
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, &ReadError{1, "this is no recording of memplan record"}
		}
		src = z
	}
	r := &reader{}
	in := &io.LimitedReader{R: src, N: maxText}
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		text, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			r.line++
			m.Hold(tensor.Bytes(lineBytes * len(text)))
			if e := r.read(text); e != nil {
				return nil, &ReadError{r.line, e.Error()}
			}
		}
		switch {
		case in.N <= 0:
			return nil, &ReadError{r.line, "the recording is longer than 512 MiB"}
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, &ReadError{r.line, "the recording ends in the middle"}
		case err == io.EOF:
			if r.line == 0 {
				return nil, &ReadError{1, "the recording is empty"}
			}
			return r.all, nil
		case err != nil:
			return nil, &ReadError{r.line, err.Error()}
		}
	}
}

// reader reads line by line.
type reader struct {
	all  []*Recording
	out  *Recording // the last of them
	line int
}

// errShort is what a line lacks.
var errShort = errors.New("the line is too short for its kind")

func (r *reader) read(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var a []any
	if err := d.Decode(&a); err != nil {
		return fmt.Errorf("not a JSON array: %v", err)
	}
	if len(a) == 0 {
		return errShort
	}
	kind, _ := a[0].(string)
	if r.line == 1 || kind == "memplan" {
		return r.head(kind, a, text)
	}
	f := &fields{a: a[1:]}
	if err := r.table(kind, f); err != errOther {
		return err
	}
	l := Line{Frame: -1}
	if err := r.event(kind, f, &l); err != nil {
		return err
	}
	if f.err != nil {
		return f.err
	}
	r.out.Lines = append(r.out.Lines, l)
	return nil
}

func (r *reader) head(kind string, a []any, text []byte) error {
	if kind != "memplan" || len(a) < 3 {
		return errors.New("this is no recording of memplan record")
	}
	if n, ok := a[1].(json.Number); !ok || n.String() != "1" {
		return fmt.Errorf("the recording is of version %v; this memplan reads version 1", a[1])
	}
	r.out = &Recording{}
	r.all = append(r.all, r.out)
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[2], &r.out.Head); err != nil {
		return fmt.Errorf("the head of the recording: %v", err)
	}
	return nil
}

// errOther is what table returns of a line that is of no table.
var errOther = errors.New("not of a table")

// table reads a line that adds to a table.
func (r *reader) table(kind string, f *fields) error {
	o := r.out
	switch kind {
	case "str":
		o.Strings = append(o.Strings, f.text(0))
	case "schema":
		s, ok := parseSchema(f.text(0))
		if !ok {
			return fmt.Errorf("%.80q is no signature of an operator", f.text(0))
		}
		o.Schemas = append(o.Schemas, s)
	case "meta":
		o.Metas = append(o.Metas, f.meta())
	case "frame":
		o.Frames = append(o.Frames, Frame{f.text(0), int(f.int(1, 0, math.MaxInt32)), f.text(2)})
	default:
		return errOther
	}
	return f.err
}

// event reads a line of what happened.
func (r *reader) event(kind string, f *fields, l *Line) error {
	o := r.out
	switch kind {
	case "storage":
		device := f.text(0)
		l.Kind, l.N = Made, len(o.Storages)
		s := Storage{CUDA: len(device) >= 4 && device[:4] == "cuda", Bytes: tensor.Bytes(f.int(1, 0, tensor.MaxBytes))}
		if len(f.a) > 2 {
			s.Origin = f.text(2)
		}
		o.Storages = append(o.Storages, s)
	case "op":
		l.Kind = Op
		return r.op(f, l)
	case "free":
		l.Kind, l.N = Freed, int(f.int(0, 0, int64(len(o.Storages))-1))
	case "enter":
		l.Kind = Enter
		l.Name, l.Class = r.str(f, 0), r.str(f, 1)
	case "leave":
		l.Kind = Leave
	case "phase":
		l.Kind, l.Name = Phase, r.str(f, 0)
		if len(f.a) > 1 && f.a[1] != nil {
			l.N = int(f.int(1, 0, math.MaxInt32))
		}
	case "mark":
		l.Kind, l.Name = Mark, r.str(f, 0)
		for _, v := range f.rest(1) {
			x, err := r.value(v, 0)
			if err != nil {
				return err
			}
			l.Args = append(l.Args, x)
		}
	case "asked":
		l.Kind, l.Name = Asked, r.str(f, 0)
		if len(f.a) > 1 {
			l.Text = fmt.Sprint(f.a[1])
		}
		return r.frame(f, 2, l)
	case "doubt":
		l.Kind, l.Text = Doubt, r.str(f, 0)
		return r.frame(f, 1, l)
	case "end":
		l.Kind = End
		if len(f.a) > 0 {
			if m, ok := f.a[0].(map[string]any); ok {
				l.Name, _ = m["reason"].(string)
				l.Text, _ = m["text"].(string)
				return r.frame(&fields{a: []any{m["frame"]}}, 0, l)
			}
		}
	case "alloc":
		l.Kind, l.Address, l.Bytes = Alloc, f.int(0, math.MinInt64, math.MaxInt64), tensor.Bytes(f.int(1, 0, tensor.MaxBytes))
		if len(f.a) > 2 {
			l.Stream = int(f.int(2, 0, math.MaxInt16))
		}
	case "dealloc":
		l.Kind, l.Address = Dealloc, f.int(0, math.MinInt64, math.MaxInt64)
	default:
		return fmt.Errorf("unknown kind %.40q", kind)
	}
	return nil
}

// str is a text, or the number of one.
func (r *reader) str(f *fields, i int) string {
	if i < len(f.a) {
		if _, ok := f.a[i].(json.Number); ok {
			if n := f.int(i, 0, int64(len(r.out.Strings))-1); f.err == nil {
				return r.out.Strings[n]
			}
			return ""
		}
	}
	return f.text(i)
}

func (r *reader) frame(f *fields, i int, l *Line) error {
	if i < len(f.a) && f.a[i] != nil {
		l.Frame = int(f.int(i, -1, int64(len(r.out.Frames))-1))
	}
	return f.err
}

// op reads the call of an operator.
func (r *reader) op(f *fields, l *Line) error {
	l.N = int(f.int(0, 0, int64(len(r.out.Schemas))-1))
	if f.err != nil || len(f.a) < 4 {
		return errors.Join(f.err, short(f, 4))
	}
	var err error
	if l.Args, err = r.list(f.a[1], 0); err != nil {
		return err
	}
	if m, ok := f.a[2].(map[string]any); ok && len(m) > 0 {
		l.Kwargs = make(map[string]any, len(m))
		for k, v := range m {
			if l.Kwargs[k], err = r.value(v, 0); err != nil {
				return err
			}
		}
	}
	if l.Outs, err = r.list(f.a[3], 0); err != nil {
		return err
	}
	if n := len(r.out.Schemas[l.N].Args); len(l.Args) > n {
		return fmt.Errorf("%s has %d arguments, not %d", r.out.Schemas[l.N].Full(), n, len(l.Args))
	}
	if len(f.a) > 4 {
		m, _ := f.a[4].(map[string]any)
		l.Back, _ = m["backward"].(bool)
		l.Cast, _ = m["autocast"].(string)
		if n, ok := m["stream"].(json.Number); ok {
			s, err := strconv.ParseInt(n.String(), 10, 16)
			if err != nil || s < 0 {
				return fmt.Errorf("stream %s", n)
			}
			l.Stream = int(s)
		}
		return r.frame(&fields{a: []any{m["frame"]}}, 0, l)
	}
	return nil
}

func short(f *fields, n int) error {
	if len(f.a) < n {
		return errShort
	}
	return nil
}

// maxDepth is how deep lists in arguments may be.
const maxDepth = 8

func (r *reader) list(v any, depth int) ([]any, error) {
	a, ok := v.([]any)
	if !ok {
		if v == nil {
			return nil, nil
		}
		return nil, errors.New("arguments and results must be lists")
	}
	out := make([]any, len(a))
	for i, x := range a {
		y, err := r.value(x, depth)
		if err != nil {
			return nil, err
		}
		out[i] = y
	}
	return out, nil
}

// value makes of JSON an int64, float64, bool, string, Ref, Named, []any or nil.
func (r *reader) value(v any, depth int) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("number %.40s", v)
		}
		return f, nil
	case []any:
		if depth == maxDepth {
			return nil, errors.New("lists are nested too deep")
		}
		return r.list(v, depth+1)
	case map[string]any:
		if t, ok := v["t"].([]any); ok {
			return r.ref(&fields{a: t})
		}
		if f, ok := v["float"].(string); ok {
			x, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return nil, fmt.Errorf("float %.40q", f)
			}
			return x, nil
		}
		for k, x := range v {
			s, _ := x.(string)
			return Named{k, s}, nil
		}
		return nil, nil
	}
	return v, nil
}

func (r *reader) ref(f *fields) (any, error) {
	t := Ref{
		Storage: int(f.int(0, Nowhere, int64(len(r.out.Storages))-1)), Meta: int(f.int(1, 0, int64(len(r.out.Metas))-1)), Offset: f.int(2, 0, tensor.MaxBytes),
	}
	if len(f.a) > 3 {
		t.Flags = int(f.int(3, 0, math.MaxInt32))
	}
	return t, f.err
}

// fields reads what is behind the kind of a line.
type fields struct {
	a   []any
	err error
}

func (f *fields) fail(i int, what string) {
	if f.err == nil {
		f.err = fmt.Errorf("field %d must be %s", i+1, what)
		if i >= len(f.a) {
			f.err = errShort
		}
	}
}

func (f *fields) text(i int) string {
	if i < len(f.a) {
		if s, ok := f.a[i].(string); ok {
			return s
		}
	}
	f.fail(i, "a text")
	return ""
}

func (f *fields) int(i int, least, most int64) int64 {
	if i < len(f.a) {
		if n, ok := f.a[i].(json.Number); ok {
			if v, err := strconv.ParseInt(n.String(), 10, 64); err == nil && v >= least && v <= most {
				return v
			}
		}
	}
	f.fail(i, fmt.Sprintf("an integer from %d to %d", least, most))
	return 0
}

func (f *fields) rest(i int) []any {
	if i >= len(f.a) {
		return nil
	}
	return f.a[i:]
}

func (f *fields) ints(i int) []int64 {
	if i < len(f.a) {
		if a, ok := f.a[i].([]any); ok {
			g := &fields{a: a}
			out := make([]int64, len(a))
			for k := range a {
				out[k] = g.int(k, -tensor.MaxBytes, tensor.MaxBytes)
			}
			if g.err == nil {
				return out
			}
		}
	}
	f.fail(i, "a list of integers")
	return nil
}

// meta reads the type and layout of a tensor. What memplan does not know is remembered as
// such: only rows need it.
func (f *fields) meta() Meta {
	name, size, stride := f.text(0), f.ints(1), f.ints(2)
	d, err := tensor.ParseDType(name)
	if bits, ok := strings.CutPrefix(name, "uint"); ok && err != nil { // which no row tells from signed ones
		d, err = tensor.ParseDType("int" + bits)
	}
	if err != nil || len(size) > tensor.MaxRank || len(size) != len(stride) {
		return Meta{}
	}
	l := tensor.Layout{Size: tensor.D(size...), Stride: tensor.D(stride...)}
	if _, err := l.Size.CheckNumel(); err != nil {
		return Meta{}
	}
	for _, s := range stride {
		if s < 0 {
			return Meta{}
		}
	}
	return Meta{l, d, true}
}

// Release is the release line of PyTorch that the script ran in: 2.6; "" where it is not said.
func (r *Recording) Release() string {
	parts := strings.SplitN(r.Torch, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// At says of which line of the script something is: " (train.py:12)", or "".
func (r *Recording) At(frame int) string {
	if frame < 0 || frame >= len(r.Frames) {
		return ""
	}
	f := r.Frames[frame]
	return fmt.Sprintf(" (%s:%d)", f.File, f.Line)
}
