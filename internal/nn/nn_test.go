package nn

import (
	"math"
	"testing"
)

func TestKind(t *testing.T) {
	for want, l := range map[string]*Layer{"Sequential": Sequential, "LoraConv2d": LoraConv[2], "": OutProj, "Linear": {Python: "nn.Linear"}} {
		if got := l.Kind(); got != want {
			t.Errorf("%s is called %s", l.Python, got)
		}
	}
}

// First values of parameters, as reset_parameters in torch/nn/modules draws them.
func TestInit(t *testing.T) {
	for _, c := range []struct {
		name string
		l    Layer
		p    Parameter
		want Distribution
	}{
		{"a weight", Layer{Init: Kaiming}, Parameter{"weight", []int64{8, 4, 3, 3}, nil}, Distribution{Uniform: 1. / 6}},
		{"its bias", Layer{Init: Kaiming}, Parameter{"bias", []int64{8}, []int64{8, 4, 3, 3}}, Distribution{Uniform: 1. / 6}},
		{"a projection", *OutProj, Parameter{"weight", []int64{16, 16}, nil}, Distribution{Uniform: 0.25}},
		{"a norm", Layer{Init: Batch}, Parameter{"running_var", []int64{8}, nil}, Distribution{Constant: 1}},
		{"a recurrent layer", Layer{Init: Recurrent(4)}, Parameter{"weight_ih_l0", []int64{64, 3}, nil}, Distribution{Uniform: 0.25}},
		{"the projection of an LSTM", Layer{Init: Recurrent(4)}, Parameter{"weight_hr_l0", []int64{2, 16}, nil}, Distribution{Uniform: 0.25}},
		{"attention", Layer{Init: Xavier}, Parameter{"in_proj_weight", []int64{96, 32}, nil}, Distribution{Uniform: math.Sqrt(6. / 128)}},
	} {
		rule := c.l.Rule(c.p.Name)
		if rule == nil {
			t.Errorf("%s has no rule", c.name)
		} else if got := rule(c.p); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for _, name := range []string{"bias", "running_mean"} {
		if l := (Layer{Init: Batch}); l.Rule(name) != nil {
			t.Errorf("%s does not start as zeros", name)
		}
	}
}
