package python

import (
	"testing"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// TestStopPopsScope stops a recomputation inside of all that code can be in, and looks
// whether what follows is in any of it.
func TestStopPopsScope(t *testing.T) {
	p := New(op.Env{}, nil)
	p.untilStop(func() {
		p.Env().GradMode = true
		p.EnterHooks(offloading{p})
		p.EnterMode(autograd.NewSelective(nil, nil))
		p.whole, p.onGPU = true, 0
		p.On(true, true, func() {
			p.OnStream(autograd.GatherStream, func() {
				p.Labelled("inside", 0, func() { p.Quiet(func() { panic(stopRecomputation{}) }) })
			})
		})
	})
	x := p.New(tensor.Contiguous(tensor.D(4)), tensor.Float32)
	if autograd.OnHost(x) {
		t.Fatal("a new tensor lies in the machine's memory")
	}
	e := p.Trace().Events[0]
	if name := p.Trace().Ops[e.Op]; e.Stream != 0 || name != "" {
		t.Errorf("it is of stream %d and operation %q", e.Stream, name)
	}
	if env := p.Env(); env.GradMode || env.TorchDispatch || p.Muted != 0 || p.whole {
		t.Errorf("modes of the recomputation are entered: %+v", env)
	}
}
