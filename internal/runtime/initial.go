package runtime

import (
	"math"
	"strings"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// distribution is how the elements of a parameter are drawn at first.
type distribution struct {
	constant float64
	uniform  float64 // bound of a uniform distribution around 0; 0: none
	normal   float64 // standard deviation of a normal one; 0: none
}

// fans are the numbers of inputs and outputs that one element of a weight
// connects (_calculate_fan_in_and_fan_out in torch/nn/init.py).
func fans(size []int64) (in, out float64) {
	if len(size) < 2 {
		return 1, 1
	}
	field := 1.0
	for _, n := range size[2:] {
		field *= float64(n)
	}
	return float64(size[1]) * field, float64(size[0]) * field
}

// sibling is the parameter of a class with a name.
func sibling(c *program.Class, name string) []int64 {
	for _, p := range c.Params {
		if p.Name == name {
			return p.Size
		}
	}
	return nil
}

// initials are the rules by class and name of the parameter, "*" for every
// other name: reset_parameters of the modules in torch/nn/modules. What is not
// listed is 0; parameters that a spec declares itself say so with init.
var initials = map[string]map[string]func(c *program.Class, p *program.Param) distribution{
	"Linear":                          kaiming,
	"NonDynamicallyQuantizableLinear": {"weight": kaimingWeight},
	"Conv1d":                          kaiming,
	"Conv2d":                          kaiming,
	"Conv3d":                          kaiming,
	"ConvTranspose1d":                 kaiming,
	"ConvTranspose2d":                 kaiming,
	"ConvTranspose3d":                 kaiming,
	"Embedding":                       {"weight": func(*program.Class, *program.Param) distribution { return distribution{normal: 1} }},
	"LayerNorm":                       {"weight": ones},
	"RMSNorm":                         {"weight": ones},
	"GroupNorm":                       {"weight": ones},
	"BatchNorm1d":                     batchNormInitial,
	"BatchNorm2d":                     batchNormInitial,
	"BatchNorm3d":                     batchNormInitial,
	"SyncBatchNorm":                   batchNormInitial,
	"PReLU":                           {"weight": func(*program.Class, *program.Param) distribution { return distribution{constant: 0.25} }},
	"MultiheadAttention": {
		"in_proj_weight": xavier, "q_proj_weight": xavier, "k_proj_weight": xavier, "v_proj_weight": xavier,
		"bias_k": xavierNormal, "bias_v": xavierNormal,
	},
}

var (
	kaiming = map[string]func(c *program.Class, p *program.Param) distribution{
		"weight": kaimingWeight,
		"bias": func(c *program.Class, _ *program.Param) distribution {
			in, _ := fans(sibling(c, "weight"))
			return distribution{uniform: 1 / math.Sqrt(in)}
		},
	}
	batchNormInitial = map[string]func(c *program.Class, p *program.Param) distribution{"weight": ones, "running_var": ones}
)

// kaimingWeight is kaiming_uniform_ with a = sqrt(5).
func kaimingWeight(_ *program.Class, p *program.Param) distribution {
	in, _ := fans(p.Size)
	return distribution{uniform: 1 / math.Sqrt(in)}
}

func xavier(_ *program.Class, p *program.Param) distribution {
	in, out := fans(p.Size)
	return distribution{uniform: math.Sqrt(6 / (in + out))}
}

func xavierNormal(_ *program.Class, p *program.Param) distribution {
	in, out := fans(p.Size)
	return distribution{normal: math.Sqrt(2 / (in + out))}
}

func ones(*program.Class, *program.Param) distribution { return distribution{constant: 1} }

// Initialize implements engine.Backend.
func (x *Executor) Initialize(t *op.Tensor, of engine.Initial) error {
	if of.Model {
		x.weights.of[of.Name] = t
		if !of.Param.Aside { // no part of the state dict
			x.weights.names = append(x.weights.names, of.Name)
		}
	}
	switch {
	case of.Shared:
		return nil
	case of.Param.Given != nil:
		return x.write(t, tensor.Encode(t.DType, of.Param.Given))
	}
	kind := of.Class.Kind()
	if of.Class.Python == "" {
		kind = "" // a block that happens to have the name of a module
	}
	d := distribution{}
	if rule := initials[kind][of.Param.Name]; rule != nil {
		d = rule(of.Class, of.Param)
	}
	switch of.Param.Init {
	case "ones":
		d.constant = 1
	case "normal":
		d.normal = 1
	}
	if d.uniform == 0 && d.normal == 0 || !t.DType.IsFloating() {
		return x.Fill(t, d.constant)
	}
	v := make([]float64, t.Numel())
	r := newStream(uint64(x.draw()))
	for i := range v {
		if d.normal > 0 {
			v[i] = d.normal * r.normal()
		} else {
			v[i] = d.uniform * (2*r.uniform() - 1)
		}
	}
	if width := t.Dim(t.Rank() - 1); kind == "Embedding" {
		if row, ok := paddingRow(of.Class.Python, t.Dim(0)); ok {
			clear(v[row*width : (row+1)*width])
		}
	}
	return x.write(t, tensor.Encode(t.DType, v))
}

// paddingRow is the row of an embedding whose index is padding: it starts as
// zeros.
func paddingRow(constructor string, rows int64) (int64, bool) {
	_, rest, ok := strings.Cut(constructor, "padding_idx=")
	if !ok {
		return 0, false
	}
	n, negative := int64(0), strings.HasPrefix(rest, "-")
	digits := 0
	for _, c := range strings.TrimPrefix(rest, "-") {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
		digits++
	}
	if negative {
		n = rows - n
	}
	return n, digits > 0 && n >= 0 && n < rows
}
