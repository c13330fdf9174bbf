package runtime

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Uses say what a job does with its inputs, as far as data must fit it.
type Uses struct {
	// Bounds are, for inputs of integers that index a table or name a class, how
	// many rows or classes there are.
	Bounds map[string]int64
	// Targets are the inputs that name classes.
	Targets map[string]bool
	// Scratch is the most that one call takes of host memory beside its operands: copies of
	// other types on the device, if that is in host memory, and arrays of what is computed aside.
	Scratch tensor.Bytes
	// HostOperators are what Result has under this name.
	HostOperators []string
}

// Probe plays one step without executing it, and reports what cannot be
// executed, on a device if there is one, and how the inputs are used.
func Probe(prog *program.Job, env op.Env, d Device) (Uses, error) {
	p := &probe{uses: Uses{Bounds: map[string]int64{}, Targets: map[string]bool{}}, inputs: map[int32]string{}}
	p.device, p.host.device = dry{checks: d, scratch: &p.uses.Scratch}, dry{checks: cpu.New(0), scratch: &p.uses.Scratch}
	if n := prog.Parallel.Ranks; n > 0 {
		return p.uses, unsupported("a job of %d processes", n)
	}
	if prog.Parallel.Megatron != nil {
		return p.uses, unsupported("the buffers and the optimizer of Megatron")
	}
	_, err := engine.Play(prog, env, p, 1)
	p.uses.HostOperators = slices.Sorted(maps.Keys(p.hostOps))
	return p.uses, err
}

// dry is a device that only checks what another one is to run, if there is one.
type dry struct {
	Device
	checks  Device
	scratch *tensor.Bytes // the most of a call so far
}

func (d dry) OnHost() bool { return d.checks != nil && d.checks.OnHost() }

func (d dry) Write(allocsim.Address, []byte) error { return nil }
func (d dry) Read([]byte, allocsim.Address) error  { return nil }

func (d dry) Launch(c *kernel.Call) error {
	if d.checks == nil {
		return nil
	}
	if s, copies := d.checks.(interface {
		Scratch(*kernel.Call) tensor.Bytes
	}); copies {
		*d.scratch = max(*d.scratch, s.Scratch(c))
	}
	return d.checks.Check(c)
}

// probe is a backend whose memory is only addresses.
type probe struct {
	Executor
	uses   Uses
	inputs map[int32]string // by block
}

// somewhere is where all blocks of a probe lie.
const somewhere = 512

func (p *probe) Alloc(id int32, n tensor.Bytes, _ int16) error {
	p.put(id, allocation{allocsim.Block{Address: somewhere}, n})
	return nil
}

func (p *probe) Free(int32) error  { return nil }
func (p *probe) EmptyCache() error { return nil }

// refused turns the error of a dry run of r into one that says what cannot be
// executed.
func refused(r string, err error) error {
	if known := (*UnsupportedError)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	if types := (*kernel.UnsupportedError)(nil); errors.As(err, &types) {
		return unsupported("%s of %v on %s", r, types.DType, types.Device)
	}
	if why := errors.Unwrap(err); why != nil { // without the operator's name
		err = why
	}
	return unsupported("%s of these tensors (%v)", r, err)
}

func (p *probe) Forward(c *op.Call) error {
	for _, i := range c.Op.Indices {
		if i.In < len(c.In) {
			p.bound(c.In[i.In], i.Below(c), i.Classes)
		}
	}
	p.aside = false
	err := p.Executor.Forward(c)
	p.arrays(slices.Concat(c.In, c.Out)...)
	return refused("operator "+c.Op.Name, err)
}

func (p *probe) Compute(r *op.Op, f func(op.Machine) error) error {
	return refused("operator "+r.Name, p.Executor.Compute(r, f))
}

// arrays counts what of a call was computed aside: each operand as it is and in float64.
func (p *probe) arrays(operands ...*op.Tensor) {
	sum := int64(0)
	for _, t := range operands {
		if t != nil {
			sum += t.Numel() * (t.DType.Size() + tensor.Float64.Size())
		}
	}
	if p.aside {
		p.uses.Scratch = max(p.uses.Scratch, tensor.Bytes(sum))
	}
}

// bound notes that an input, if t is one, holds indices below n.
func (p *probe) bound(t *op.Tensor, n int64, classes bool) {
	name, ok := p.inputs[autograd.BlockOf(t)]
	if !ok {
		return
	}
	if old, twice := p.uses.Bounds[name]; !twice || n < old {
		p.uses.Bounds[name] = n
	}
	p.uses.Targets[name] = p.uses.Targets[name] || classes
}

func (p *probe) Backward(b *op.Back) error {
	p.aside = false
	err := p.Executor.Backward(b)
	p.arrays(slices.Concat(b.Grads, b.Results, b.SavedIns(), b.SavedOuts())...)
	return refused("the derivative of operator "+b.Op.Name, err)
}

func (p *probe) Step(o *program.Optimizer, groups []optim.Group) error {
	return refused("optimizer "+o.Row.Name, p.Executor.Step(o, groups))
}

// Dry implements engine.Backend.
func (p *probe) Dry() bool { return true }

func (p *probe) Unscale(grads []*op.Tensor, factor float64) (bool, error) {
	_, err := p.Executor.Unscale(grads, factor)
	return true, refused("GradScaler", err)
}

func (p *probe) Initialize(*op.Tensor, python.Initial) error { return nil }

func (p *probe) Clip(grads []*op.Tensor, byValue bool, bound float64) error {
	return refused("clip_grad", p.Executor.Clip(grads, byValue, bound))
}

func (p *probe) Norms(norms, of []*op.Tensor, stacked *op.Tensor) error {
	return refused("clip_grad_norm", p.Executor.Norms(norms, of, stacked))
}

func (p *probe) Scale(grads []*op.Tensor, norm *op.Tensor, bound float64, spare, factor *op.Tensor) error {
	return refused("clip_grad_norm", p.Executor.Scale(grads, norm, bound, spare, factor))
}

func (p *probe) Loss(*op.Tensor) error { return nil }

func (p *probe) BeginEval()                {}
func (p *probe) EvalLoss(*op.Tensor) error { return nil }
func (p *probe) EvalBatch()                {}

func (p *probe) EndEval(int) (float64, error) { return math.NaN(), nil }

func (p *probe) Load(t *op.Tensor, in program.Input) error {
	p.inputs[autograd.BlockOf(t)] = in.Name
	return nil
}
