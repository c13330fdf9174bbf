package nn

import (
	"math"
	"strings"
)

// Distribution is how the elements of a parameter are drawn at first.
type Distribution struct {
	Constant float64
	Uniform  float64 // bound of a uniform distribution around 0; 0: none
	Normal   float64 // standard deviation of a normal one; 0: none
}

// Parameter is one whose first values are wanted.
type Parameter struct {
	Name   string
	Size   []int64
	Weight []int64 // the size of its layer's weight; nil if it has none
}

// Init is the rule of one parameter.
type Init func(p Parameter) Distribution

// Rule is the rule of a parameter, nil if it starts as zeros.
func (l *Layer) Rule(name string) Init {
	if r := l.Init[name]; r != nil {
		return r
	}
	return l.Init["*"]
}

// Rules that several layers have.
var (
	Kaiming = map[string]Init{
		"weight": kaimingWeight,
		"bias": func(p Parameter) Distribution {
			in, _ := fans(p.Weight)
			return Distribution{Uniform: 1 / math.Sqrt(in)}
		},
	}
	Unit   = map[string]Init{"weight": unit}                      // of embeddings
	Ones   = map[string]Init{"weight": ones}                      // of norms
	Batch  = map[string]Init{"weight": ones, "running_var": ones} // of norms with running statistics
	Slope  = map[string]Init{"weight": func(Parameter) Distribution { return Distribution{Constant: 0.25} }}
	Xavier = map[string]Init{ // of attention
		"in_proj_weight": xavier, "q_proj_weight": xavier, "k_proj_weight": xavier, "v_proj_weight": xavier,
		"bias_k": xavierNormal, "bias_v": xavierNormal,
	}
	Bilinear = map[string]Init{"*": func(p Parameter) Distribution { return Distribution{Uniform: 1 / math.Sqrt(float64(p.Weight[1]))} }}
)

// Recurrent draws all parameters of a recurrent layer or cell of so many gates
// within the root of the width of its state (RNNBase.reset_parameters).
func Recurrent(gates int64) map[string]Init {
	return map[string]Init{"*": func(p Parameter) Distribution {
		hidden := float64(p.Size[0]) / float64(gates)
		if strings.HasPrefix(p.Name, "weight_hr") { // the projection of an LSTM
			hidden = float64(p.Size[1])
		}
		return Distribution{Uniform: 1 / math.Sqrt(hidden)}
	}}
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

// kaimingWeight is kaiming_uniform_ with a = sqrt(5).
func kaimingWeight(p Parameter) Distribution {
	in, _ := fans(p.Size)
	return Distribution{Uniform: 1 / math.Sqrt(in)}
}

func xavier(p Parameter) Distribution {
	in, out := fans(p.Size)
	return Distribution{Uniform: math.Sqrt(6 / (in + out))}
}

func xavierNormal(p Parameter) Distribution {
	in, out := fans(p.Size)
	return Distribution{Normal: math.Sqrt(2 / (in + out))}
}

func ones(Parameter) Distribution { return Distribution{Constant: 1} }

func unit(Parameter) Distribution { return Distribution{Normal: 1} }
