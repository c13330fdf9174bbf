package runtime

import (
	"context"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// reading is a device that counts how often it is read.
type reading struct {
	*cpu.Device
	reads int
}

func (d *reading) Read(to []byte, from allocsim.Address) error {
	d.reads++
	return d.Device.Read(to, from)
}

// clipped keeps the squares of the gradients that reach the optimizer.
type clipped struct {
	*Executor
	squares float64
}

func (c *clipped) Step(_ *program.Optimizer, groups []optim.Group) error {
	c.squares = 0
	for _, g := range groups {
		for _, p := range g.Params {
			v, err := c.Values(p.Grad)
			if err != nil {
				return err
			}
			for _, f := range v {
				c.squares += f * f
			}
		}
	}
	return nil
}

// TestClipNorm: gradients are scaled to the norm that is asked for, or stay as they
// are; and in a run nothing is read from the device for it.
func TestClipNorm(t *testing.T) {
	for _, c := range []struct {
		precision string
		bound     string
		want      float64 // norm
		error     float64
	}{
		{"fp32", "0.01", 0.01, 1e-5},
		{"bf16", "0.01", 0.01, 1e-2}, // norms are bfloat16 there
		{"fp32", "1000", 0, 0},
	} {
		j := job(t, "mlp", "device.gpu=a100-40gb", "params.sizes=[32,64,10]", "train.batch_size=8", "train.optimizer=SGD",
			"train.precision="+c.precision, "train.clip_grad_norm="+c.bound)
		norm := func(prog *program.Job, env op.Env) float64 {
			d := cpu.New(tensor.GiB)
			alloc, err := allocsim.New(j.Machine.Conf, d, allocsim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			uses, err := Probe(prog, env, d)
			if err != nil {
				t.Fatal(err)
			}
			x := &clipped{Executor: NewExecutor(d, alloc, NewSynthetic(prog, uses, 1), 1)}
			x.poison = true
			if _, err := engine.Play(prog, env, x, 1); err != nil {
				t.Fatal(err)
			}
			return math.Sqrt(x.squares)
		}
		got := norm(j.Program, j.Machine.Env)
		want := c.want
		if want == 0 {
			free := job(t, "mlp", "device.gpu=a100-40gb", "params.sizes=[32,64,10]", "train.batch_size=8", "train.optimizer=SGD")
			want = norm(free.Program, free.Machine.Env)
		}
		if !(math.Abs(got-want) <= c.error*want) {
			t.Errorf("%s, bound %s: the norm is %v, not %v", c.precision, c.bound, got, want)
		}
		d := &reading{Device: cpu.New(tensor.GiB)}
		const steps = 3
		if _, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: d, Config: j.Machine.Conf, Steps: steps, Poison: true}); err != nil {
			t.Fatal(err)
		}
		if d.reads != steps { // of the loss
			t.Errorf("%s: the device is read %d times in %d steps", c.precision, d.reads, steps)
		}
	}
}
