package runtime

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Executor is a backend of the engine: it computes what is played on a device.
type Executor struct {
	memory
	source  Source
	loads   map[string]int  // how often each input was loaded
	notes   map[int32]any   // what operators noted, by block
	seed    uint64          // of the job
	random  uint64          // how often random numbers were drawn
	running string          // the operator or optimizer that is computed now
	single  bool            // numbers of float64 that are written are those of float32
	aside   bool            // it is computed in host memory
	hostOps map[string]bool // of these, what was computed in host memory
	losses  []float64
	weights Weights
	onStep  func(step int) error
	onStart func() error // called once, when the weights are there and the first batch is loaded
	stopped func() error // an error ends the run; nil: nothing does
	given   *given       // nil: weights are drawn
	resume  *Checkpoint  // until its step was played
	finite  []byte       // what Unscale found, '0' or '1'

	validation Source      // batches of evaluations; nil: source goes on in them
	eval       *evaluation // under way
	onEval     func(Evaluation) error
	clock      func() time.Time // nil: time stands still
	paused     time.Duration    // of the step under way, in evaluations
	words      map[int64]bool   // of how many words inputs are made
}

var _ engine.Backend = (*Executor)(nil)

// UnsupportedError says that something of a job can be planned but not
// executed, and which statement of the spec and layer it belongs to, if any.
type UnsupportedError struct {
	What  string
	File  string
	Line  int
	Layer string
}

func (e *UnsupportedError) Error() string {
	text := e.What + " cannot be executed by memplan run yet"
	if e.Layer != "" {
		text = e.Layer + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d: %s", e.File, e.Line, text)
	}
	return text
}

// At implements autograd.Placed.
func (e *UnsupportedError) At(file string, line int, layer string) {
	e.File, e.Line, e.Layer = file, line, layer
}

func unsupported(format string, args ...any) error {
	return &UnsupportedError{What: fmt.Sprintf(format, args...)}
}

// Free implements engine.Backend.
func (x *Executor) Free(id int32) error {
	delete(x.notes, id)
	return x.memory.Free(id)
}

// rowEval is how an operator is computed; it has neither values nor a derivative where
// its row does not say.
func rowEval(r *op.Op) *op.Eval {
	if r.Eval == nil {
		return &op.Eval{}
	}
	return r.Eval
}

// evalOf is how an operator is computed on the device.
func (x *Executor) evalOf(r *op.Op) *op.Eval {
	if e := rowEval(r); !e.FormulaOnHost || !x.device.OnHost() {
		return e
	}
	return r.Eval.ByFormula
}

// Composes implements engine.Backend.
func (x *Executor) Composes(r *op.Op) bool { return x.evalOf(r).Forward == nil }

// Inside implements engine.Backend.
func (x *Executor) Inside(r *op.Op) bool { return x.evalOf(r).Inside }

// Compute implements engine.Backend.
func (x *Executor) Compute(r *op.Op, f func(op.Machine) error) error {
	x.running = r.Name
	return x.named(r, f(x))
}

// Forward implements engine.Backend. A row whose results lie where its inputs do
// has nothing to compute.
func (x *Executor) Forward(c *op.Call) error {
	e := x.evalOf(c.Op)
	if !c.Op.InPlace && !e.Over && aliases(c.Out, c.In) {
		return nil
	}
	x.running = c.Op.Name
	if e.Forward == nil {
		return unsupported("operator %s", c.Op.Name)
	}
	if x.eval != nil {
		if err := x.score(c); err != nil {
			return err
		}
	}
	return x.named(c.Op, e.Forward(x, c))
}

// Derives implements engine.Backend.
func (x *Executor) Derives(r *op.Op) bool {
	e := x.evalOf(r)
	return e.Backward != nil || !e.InParts
}

// Backward implements engine.Backend.
func (x *Executor) Backward(b *op.Back) error {
	x.running = b.Op.Name
	e := x.evalOf(b.Op)
	if e.Backward == nil {
		return unsupported("the derivative of operator %s", b.Op.Name)
	}
	return x.named(b.Op, e.Backward(x, b))
}

func (x *Executor) named(r *op.Op, err error) error {
	if no := (*op.Refusal)(nil); errors.As(err, &no) {
		err = unsupported("%s", no.What)
	}
	if err != nil {
		return fmt.Errorf("operator %s: %w", r.Name, err)
	}
	return nil
}

// aliases reports whether all results lie in blocks of the inputs.
func aliases(out, in []*op.Tensor) bool {
	for _, o := range out {
		found := false
		for _, t := range in {
			found = found || t != nil && autograd.BlockOf(t) == autograd.BlockOf(o)
		}
		if !found {
			return false
		}
	}
	return true
}

// wanted returns the result i of a derivative that is to be computed: nil if
// nothing needs it or if it is an incoming gradient.
func wanted(b *op.Back, i int) *op.Tensor {
	if i >= len(b.Results) || b.Results[i] == nil || aliases(b.Results[i:i+1], b.Grads) {
		return nil
	}
	return b.Results[i]
}

// Launch implements op.Machine. Operands of Map and Reduce kernels are broadcast to the
// size of the first one that is read.
func (x *Executor) Launch(k *kernel.Kernel, ts []kernel.Tensor, ints []int64, floats ...float64) error {
	if x.stopped != nil {
		if err := x.stopped(); err != nil {
			return err
		}
	}
	c := &kernel.Call{Kernel: k, T: ts, I: ints, F: floats}
	if err := c.Check(); err != nil {
		return err
	}
	if ts[0].Numel() == 0 && k.Kind == kernel.Map {
		return nil
	}
	return x.start(c)
}

// Apply implements op.Machine.
func (x *Executor) Apply(k *kernel.Kernel, y *op.Tensor, in []*op.Tensor, floats ...float64) error {
	ts := []kernel.Tensor{x.operand(y)}
	for _, t := range in {
		o, err := x.broadcast(t, y.Size)
		if err != nil {
			return err
		}
		ts = append(ts, o)
	}
	if k == kernel.Copy && y.DType == in[0].DType && y.Size == in[0].Size {
		if what := x.Noted(in[0]); what != nil {
			x.Note(y, what)
		}
	}
	return x.Launch(k, ts, nil, floats...)
}

// Fill implements engine.Backend.
func (x *Executor) Fill(t *op.Tensor, v float64) error { return x.Apply(kernel.Fill, t, nil, v) }

// Copy implements engine.Backend.
func (x *Executor) Copy(t, from *op.Tensor) error {
	return x.Apply(kernel.Copy, t, []*op.Tensor{from})
}

// Loss implements engine.Backend.
func (x *Executor) Loss(t *op.Tensor) error {
	if x.skip {
		return nil
	}
	v, err := x.scalar(t)
	x.losses = append(x.losses, v)
	return err
}

// scalar reads a tensor of one element.
func (x *Executor) scalar(t *op.Tensor) (float64, error) {
	o := x.operand(t)
	data := make([]byte, o.DType.Size())
	if err := x.read(data, o); err != nil {
		return 0, err
	}
	v := tensor.Decode(o.DType, data)
	if len(v) == 0 {
		return math.NaN(), nil
	}
	return v[0], nil
}

// Read implements engine.Backend.
func (x *Executor) Read(t *op.Tensor) ([]float64, error) {
	a := &onArrays{x: x}
	v := a.Get(t)
	return v, a.err
}

// Write implements engine.Backend.
func (x *Executor) Write(t *op.Tensor, v []float64) error {
	a := &onArrays{x: x}
	a.Put(t, v)
	return a.err
}

// Dry implements engine.Backend.
func (x *Executor) Dry() bool { return false }

// Random implements engine.Backend.
func (x *Executor) Random() uint64 { return x.random }

// SetRandom implements engine.Backend.
func (x *Executor) SetRandom(state uint64) { x.random = state }

// Draw implements op.Machine.
func (x *Executor) Draw() int64 {
	x.random++
	return int64(x.seed<<32 | x.random&(1<<32-1))
}

// EndStep implements engine.Backend.
func (x *Executor) EndStep(n int) error {
	if x.onStep == nil {
		return nil
	}
	return x.onStep(n)
}

// Load implements engine.Backend.
func (x *Executor) Load(t *op.Tensor, in program.Input) error {
	if start := x.onStart; start != nil {
		x.onStart = nil
		if err := start(); err != nil {
			return err
		}
	}
	source, loads := x.source, x.loads
	if x.eval != nil && x.validation != nil {
		source, loads = x.validation, x.eval.loads
		x.eval.samples = in.Size[0]
	}
	n := loads[in.Name]
	loads[in.Name]++
	if x.skip {
		return nil
	}
	data, err := source.Values(n, in)
	if err != nil {
		return fmt.Errorf("input %s: %w", in.Name, err)
	}
	return x.write(t, data)
}

// write fills a tensor whose elements lie in row-major order.
func (x *Executor) write(t *op.Tensor, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if !t.IsContiguous() || int64(len(data)) != t.Numel()*t.DType.Size() {
		return fmt.Errorf("%d bytes do not fill a tensor of shape %v and type %v", len(data), t.Size, t.DType)
	}
	return x.overwrite(x.operand(t), x.rounded(t, data))
}

// rounded are elements that are written, as a job in float32 has them if that is asked for.
func (x *Executor) rounded(t *op.Tensor, data []byte) []byte {
	if !x.single || t.DType != tensor.Float64 {
		return data
	}
	return tensor.Encode(t.DType, tensor.Decode(tensor.Float32, tensor.Encode(tensor.Float32, tensor.Decode(t.DType, data))))
}

// writePart fills elements of a tensor in row-major order, from one on.
func (x *Executor) writePart(t *op.Tensor, from int64, data []byte) error {
	if !t.IsContiguous() || from*t.DType.Size()+int64(len(data)) > t.Numel()*t.DType.Size() {
		return fmt.Errorf("%d bytes from element %d on do not fit a tensor of shape %v and type %v", len(data), from, t.Size, t.DType)
	}
	l := t.Layout
	l.Offset += from
	return x.overwrite(x.At(t, l), x.rounded(t, data))
}
