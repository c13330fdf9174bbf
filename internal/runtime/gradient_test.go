package runtime

import (
	"fmt"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// tangent runs one step with one element of one parameter moved, and keeps the
// gradients.
type tangent struct {
	*Executor
	path      string // of the parameter that is moved
	element   int
	by        float64
	loss      float64
	gradients map[string][]float64
	names     map[int32]string // of parameters, by block
	order     []string
}

func (s *tangent) Initialize(t *op.Tensor, of python.Initial) error {
	if err := s.Executor.Initialize(t, of); err != nil {
		return err
	}
	if of.Shared {
		return nil
	}
	s.names[autograd.BlockOf(t)] = of.Name
	if of.Name != s.path {
		return nil
	}
	v, err := s.Values(t)
	if err != nil {
		return err
	}
	v[s.element] += s.by
	return s.write(t, tensor.Encode(t.DType, v))
}

func (s *tangent) Loss(t *op.Tensor) (err error) {
	s.loss, err = s.scalar(t)
	return err
}

func (s *tangent) Step(_ *program.Optimizer, groups []optim.Group) error {
	var params []*optim.Param
	for _, g := range groups {
		params = append(params, g.Params...)
	}
	for _, p := range params {
		v, err := s.Read(p.Grad)
		if err != nil {
			return err
		}
		name := s.names[autograd.BlockOf(p.T)]
		s.gradients[name] = v
		s.order = append(s.order, name)
	}
	return nil
}

// play runs one step with a parameter moved.
func play(t *testing.T, prog *program.Job, env op.Env, path string, element int, by float64) *tangent {
	t.Helper()
	return playOn(t, cpu.New(2*tensor.GiB), prog, env, path, element, by)
}

func playOn(t *testing.T, device Device, prog *program.Job, env op.Env, path string, element int, by float64) *tangent {
	t.Helper()
	defer func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	}()
	alloc, err := allocsim.New(allocsim.Config{}, device, allocsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	uses, err := Probe(prog, env, device)
	if err != nil {
		t.Fatal(err)
	}
	x := NewExecutor(device, alloc, NewSynthetic(prog, uses, 1), 1)
	x.poison = true
	s := &tangent{Executor: x, path: path, element: element, by: by, gradients: map[string][]float64{}, names: map[int32]string{}}
	if _, err := engine.Play(prog, env, s, 1); err != nil {
		t.Fatal(err)
	}
	if err := x.release(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGradients holds the gradients of whole models against central differences
// in float64.
func TestGradients(t *testing.T) {
	for _, c := range []struct {
		preset string
		set    []string
	}{
		{"mlp", []string{"params.sizes=[6,9,4]", "params.act=tanh", "train.batch_size=5"}},
		{"lenet", []string{"train.batch_size=2"}},
		{"resnet", []string{"params.depth=18", "params.img=32", "params.classes=10", "train.batch_size=4"}},
		{"gpt", []string{"params.vocab=61", "params.d=16", "params.heads=2", "params.layers=2", "params.seq=7", "params.ctx=9", "train.batch_size=2"}},
		{"gpt", []string{"params.vocab=61", "params.d=16", "params.heads=2", "params.layers=2", "params.seq=7", "params.ctx=9", "train.batch_size=2", "params.manual=true", "train.checkpoint=blocks"}},
		{"vit", []string{"params.img=8", "params.patch=4", "params.d=12", "params.heads=2", "params.layers=2", "params.classes=5", "params.dropout=0.1", "train.batch_size=2"}},
		{"bert", []string{"params.vocab=50", "params.d=12", "params.heads=2", "params.layers=2", "params.ff=20", "params.maxlen=16", "params.seq=6", "train.batch_size=3"}},
	} {
		name := fmt.Sprint(c.preset, " ", c.set)
		t.Run(c.preset, func(t *testing.T) {
			if c.preset == "resnet" {
				needs.Time(t, "executes convolutions on the processor")
			}
			j := job(t, c.preset, append([]string{"device.gpu=a100-40gb"}, c.set...)...)
			program.AsFloat64(j.Program)
			base := play(t, j.Program, j.Machine.Env, "", 0, 0)
			if len(base.gradients) == 0 || math.IsNaN(base.loss) {
				t.Fatalf("%s: %d gradients, loss %v", name, len(base.gradients), base.loss)
			}
			pick := kernel.NewStream(7)
			const h = 1e-6
			worst, checked := 0.0, 0
			every, each := 1, 2 // of a large model, one element of some parameters
			if c.preset == "resnet" {
				every, each = 30, 1
			} else if testing.Short() {
				every, each = 3, 1
			}
			for k, path := range base.order {
				if k%every != 0 && k != len(base.order)-1 {
					continue
				}
				g := base.gradients[path]
				floor := 0.0
				for _, v := range g {
					floor = max(floor, math.Abs(v))
				}
				for range each {
					e := int(pick.Below(int64(len(g))))
					up := play(t, j.Program, j.Machine.Env, path, e, h)
					down := play(t, j.Program, j.Machine.Env, path, e, -h)
					want := (up.loss - down.loss) / (2 * h)
					// The loss itself is known to about 1e-15, the quotient therefore to 1e-9.
					if d := math.Abs(g[e] - want); d > 1e-5*max(math.Abs(want), 1e-2*floor)+2e-9 {
						t.Errorf("%s[%d]: gradient %.12g, differences say %.12g", path, e, g[e], want)
					} else {
						worst = max(worst, d/max(math.Abs(want), 1e-3))
					}
					checked++
				}
			}
			t.Logf("%s: %d elements, largest relative error %.1e", name, checked, worst)
		})
	}
}
