package runtime

import (
	"fmt"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/engine"
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
	seeds   map[int32]int64 // of attention's dropout, by the block of its log-sum-exp
	seed    uint64          // of the job
	random  uint64          // how often random numbers were drawn
	losses  []float64
	weights Weights
	onStep  func(step int) error
	stopped func() error // an error ends the run; nil: nothing does
}

var _ engine.Backend = (*Executor)(nil)

// UnsupportedError says that something of a job can be planned but not
// executed.
type UnsupportedError struct{ What string }

func (e *UnsupportedError) Error() string { return e.What + " cannot be executed by memplan run yet" }

func unsupported(format string, args ...any) error {
	return &UnsupportedError{fmt.Sprintf(format, args...)}
}

// Compose implements engine.Backend.
func (x *Executor) Compose(c *op.Call) error {
	if refuse, ok := composites[c.Row.Name]; ok {
		if refuse == nil {
			return nil
		}
		return refuse(c)
	}
	return unsupported("operator %s", c.Row.Name)
}

// Forward implements engine.Backend. A row whose results lie where its inputs do
// has nothing to compute. What is copied to the machine's memory is not either:
// nobody reads it, for operators there are refused.
func (x *Executor) Forward(c *op.Call) error {
	if slices.ContainsFunc(c.In, onHost) {
		return unsupported("operator %s on the CPU", c.Row.Name)
	}
	if slices.ContainsFunc(c.Out, onHost) {
		return nil
	}
	if !c.Row.InPlace && aliases(c.Out, c.In) {
		return nil
	}
	r, ok := rows[c.Row.Name]
	if !ok {
		return unsupported("operator %s", c.Row.Name)
	}
	return x.named(c.Row, r.forward(x, c))
}

// Derives implements engine.Backend.
func (x *Executor) Derives(r *op.Row) bool {
	if r.View != nil {
		return !composedViews[r.Name]
	}
	return rows[r.Name].backward != nil || !rows[r.Name].composed
}

// Backward implements engine.Backend.
func (x *Executor) Backward(b *op.Back) error {
	if b.Row.View != nil {
		return x.named(b.Row, x.viewGrad(b))
	}
	r := rows[b.Row.Name]
	if r.backward == nil {
		return unsupported("the derivative of operator %s", b.Row.Name)
	}
	return x.named(b.Row, r.backward(x, b))
}

func onHost(t *op.Tensor) bool { return t != nil && engine.OnHost(t) }

func (x *Executor) named(r *op.Row, err error) error {
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
			found = found || t != nil && engine.BlockOf(t) == engine.BlockOf(o)
		}
		if !found {
			return false
		}
	}
	return true
}

// wanted returns the result i of a derivative that is to be computed: nil if
// nobody wants it or if it is an incoming gradient.
func wanted(b *op.Back, i int) *op.Tensor {
	if i >= len(b.Results) || b.Results[i] == nil || aliases(b.Results[i:i+1], b.Grads) {
		return nil
	}
	return b.Results[i]
}

// launch runs a kernel. Operands of Map and Reduce kernels are broadcast to the
// size of the first one that is read.
func (x *Executor) launch(k *kernel.Kernel, ts []kernel.Tensor, ints []int64, floats ...float64) error {
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
	return x.device.Launch(c)
}

// apply runs a Map kernel over tensors that are broadcast to the first one.
func (x *Executor) apply(k *kernel.Kernel, y *op.Tensor, in []*op.Tensor, floats ...float64) error {
	ts := []kernel.Tensor{x.operand(y)}
	for _, t := range in {
		o, err := x.broadcast(t, y.Size)
		if err != nil {
			return err
		}
		ts = append(ts, o)
	}
	return x.launch(k, ts, nil, floats...)
}

// Fill implements engine.Backend.
func (x *Executor) Fill(t *op.Tensor, v float64) error { return x.apply(kernel.Fill, t, nil, v) }

// Copy implements engine.Backend.
func (x *Executor) Copy(t, from *op.Tensor) error {
	return x.apply(kernel.Copy, t, []*op.Tensor{from})
}

// Loss implements engine.Backend.
func (x *Executor) Loss(t *op.Tensor) error {
	v, err := x.scalar(t)
	x.losses = append(x.losses, v)
	return err
}

// scalar reads a tensor of one element.
func (x *Executor) scalar(t *op.Tensor) (float64, error) {
	o := x.operand(t)
	data := make([]byte, o.DType.Size())
	if err := x.device.Read(data, addressOf(o)); err != nil {
		return 0, err
	}
	v := tensor.Decode(o.DType, data)
	if len(v) == 0 {
		return math.NaN(), nil
	}
	return v[0], nil
}

// Random implements engine.Backend.
func (x *Executor) Random() uint64 { return x.random }

// SetRandom implements engine.Backend.
func (x *Executor) SetRandom(state uint64) { x.random = state }

// draw is the seed of the next random tensor.
func (x *Executor) draw() int64 {
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
	n := x.loads[in.Name]
	x.loads[in.Name]++
	data, err := x.source.Values(n, in)
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
	return x.device.Write(addressOf(x.operand(t)), data)
}

// viewed is a tensor with other sizes, or an error if its strides do not allow
// them; absent if t is nil.
func (x *Executor) viewed(t *op.Tensor, size ...int64) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	l, ok := t.View(tensor.D(size...))
	if !ok {
		return kernel.Tensor{}, fmt.Errorf("strides %v of shape %v cannot be seen as %s", t.Stride, t.Size, tensor.SizeString(size))
	}
	return x.at(t, l), nil
}
