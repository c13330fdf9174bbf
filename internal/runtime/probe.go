package runtime

import (
	"errors"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
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
}

// Probe plays one step without executing it, and reports what cannot be
// executed, on a device if there is one, and how the inputs are used.
func Probe(prog *program.Job, env op.Env, d Device) (Uses, error) {
	p := &probe{uses: Uses{map[string]int64{}, map[string]bool{}}, inputs: map[int32]string{}}
	p.device, p.seeds = dry{checks: d}, map[int32]int64{}
	if err := executable(prog); err != nil {
		return p.uses, err
	}
	_, err := engine.Play(prog, env, p, 1)
	return p.uses, err
}

// dry is a device that only checks what another one is to run, if there is one.
type dry struct {
	Device
	checks Device
}

func (d dry) Write(allocsim.Address, []byte) error { return nil }
func (d dry) Read([]byte, allocsim.Address) error  { return nil }

func (d dry) Launch(c *kernel.Call) error {
	if d.checks == nil {
		return nil
	}
	return d.checks.Check(c)
}

// executable refuses what jobs do beside operators that has no counterpart in
// the backend.
func executable(prog *program.Job) error {
	t := &prog.Techniques
	for _, m := range prog.Models {
		if m.Pruned != nil || m.Quantized != nil || m.Adapters != nil {
			return unsupported("a model that is pruned, quantized or has adapters")
		}
	}
	switch {
	case prog.Scaler:
		return unsupported("a GradScaler (precision amp-fp16)")
	case t.EMA != nil:
		return unsupported("an average of the weights (ema)")
	case t.Offload != program.Offload{}:
		return unsupported("offload")
	case t.Prefetch:
		return unsupported("data.device_prefetch")
	}
	for _, o := range prog.Optimizers {
		if updates[o.Row.Name] == nil {
			return unsupported("optimizer %s", o.Row.Name)
		}
	}
	return nil
}

// probe is a backend whose memory is only addresses.
type probe struct {
	Executor
	uses   Uses
	inputs map[int32]string // by block
}

// somewhere is where all blocks of a probe lie.
const somewhere = 512

func (p *probe) Alloc(id int32, n tensor.Bytes) error {
	*p.get(id) = allocation{allocsim.Block{Address: somewhere}, n}
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
	switch c.Row.Name {
	case "embedding":
		p.bound(c.In[0], c.In[1].Dim(0), false)
	case "nll_loss_forward", "nll_loss2d_forward":
		p.bound(c.In[1], c.In[0].Dim(min(1, c.In[0].Rank()-1)), true)
	}
	return refused("operator "+c.Row.Name, p.Executor.Forward(c))
}

// bound notes that an input, if t is one, holds indices below n.
func (p *probe) bound(t *op.Tensor, n int64, target bool) {
	name, ok := p.inputs[engine.BlockOf(t)]
	if !ok {
		return
	}
	if old, twice := p.uses.Bounds[name]; !twice || n < old {
		p.uses.Bounds[name] = n
	}
	p.uses.Targets[name] = p.uses.Targets[name] || target
}

func (p *probe) Backward(b *op.Back) error {
	return refused("the derivative of operator "+b.Row.Name, p.Executor.Backward(b))
}

func (p *probe) Step(o *program.Optimizer, group int, params []*optim.Param) error {
	return refused("optimizer "+o.Row.Name, p.Executor.Step(o, group, params))
}

func (p *probe) Initialize(*op.Tensor, engine.Initial) error { return nil }
func (p *probe) Clip([]*op.Tensor, bool, float64) error      { return nil }
func (p *probe) Loss(*op.Tensor) error                       { return nil }

func (p *probe) Load(t *op.Tensor, in program.Input) error {
	p.inputs[engine.BlockOf(t)] = in.Name
	return nil
}
