package runtime

import (
	"cmp"
	"math"
	"slices"
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
		if unmasked(p.Name) == name {
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
	"EmbeddingBag":                    {"weight": func(*program.Class, *program.Param) distribution { return distribution{normal: 1} }},
	"InstanceNorm1d":                  batchNormInitial,
	"InstanceNorm2d":                  batchNormInitial,
	"InstanceNorm3d":                  batchNormInitial,
	"Bilinear":                        {"*": bilinearInitial},
	"LSTM":                            recurrentInitial(4),
	"LSTMCell":                        recurrentInitial(4),
	"GRU":                             recurrentInitial(3),
	"GRUCell":                         recurrentInitial(3),
	"RNN":                             recurrentInitial(1),
	"RNNCell":                         recurrentInitial(1),
	"PReLU":                           {"weight": func(*program.Class, *program.Param) distribution { return distribution{constant: 0.25} }},
	"Linear4bit":                      quantizedInitial,
	"Linear8bitLt":                    quantizedInitial,
	"LoraEmbedding":                   {"lora_embedding_B": func(*program.Class, *program.Param) distribution { return distribution{normal: 1} }},
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
	// The layer that a quantized one stands for is an nn.Linear.
	quantizedInitial = map[string]func(c *program.Class, p *program.Param) distribution{
		"weight": kaimingWeight,
		"bias": func(c *program.Class, _ *program.Param) distribution {
			return distribution{uniform: 1 / math.Sqrt(float64(c.Quantized.In))}
		},
	}
	batchNormInitial = map[string]func(c *program.Class, p *program.Param) distribution{"weight": ones, "running_var": ones}
)

// recurrentInitial draws all parameters of a recurrent layer or cell of so many gates
// within the root of the width of its state (RNNBase.reset_parameters).
func recurrentInitial(gates float64) map[string]func(c *program.Class, p *program.Param) distribution {
	return map[string]func(c *program.Class, p *program.Param) distribution{"*": func(_ *program.Class, p *program.Param) distribution {
		hidden := float64(p.Size[0]) / gates
		if strings.HasPrefix(p.Name, "weight_hr") { // the projection of an LSTM
			hidden = float64(p.Size[1])
		}
		return distribution{uniform: 1 / math.Sqrt(hidden)}
	}}
}

// bilinearInitial is Bilinear.reset_parameters.
func bilinearInitial(c *program.Class, _ *program.Param) distribution {
	return distribution{uniform: 1 / math.Sqrt(float64(sibling(c, "weight")[1]))}
}

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
	case of.Masked != nil:
		return x.pruned(t, of.Masked, of.Amount)
	case of.Adapter && strings.HasSuffix(of.Name, ".lora_B.weight"): // LoraLayer.reset_lora_parameters of PEFT
		return x.Fill(t, 0)
	}
	kind := of.Class.Kind()
	switch {
	case kind == "": // out_proj of nn.MultiheadAttention; its bias starts as zeros (torch/nn/modules/activation.py)
		kind = "NonDynamicallyQuantizableLinear"
	case of.Class.Python == "":
		kind = "" // a block that happens to have the name of a module
	}
	d := distribution{}
	rule := initials[kind][unmasked(of.Param.Name)]
	if rule == nil {
		rule = initials[kind]["*"]
	}
	if rule != nil {
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

// unmasked is the name of a parameter without what torch.nn.utils.prune appends
// where it puts a mask over it.
func unmasked(name string) string { return strings.TrimSuffix(name, "_orig") }

// pruned fills a mask of torch.nn.utils.prune.l1_unstructured: 0 for the smallest
// elements of a weight, an amount of all.
func (x *Executor) pruned(t, weight *op.Tensor, amount float64) error {
	return x.aside(func(a *aside) {
		w := a.get(weight).v
		order := make([]int, len(w))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(math.Abs(w[i]), math.Abs(w[j])) })
		out := make([]float64, len(w))
		for i, at := range order {
			if i >= int(math.RoundToEven(amount*float64(len(w)))) {
				out[at] = 1
			}
		}
		a.put(t, out)
	})
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
