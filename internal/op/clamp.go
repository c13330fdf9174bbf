package op

import "github.com/memplan/memplan/internal/tensor"

// ClampArgs are the bounds of clamp; nil where there is none.
type ClampArgs struct {
	Min *float64 `arg:"min"`
	Max *float64 `arg:"max"`
}

// The clamps to numbers. Outside of the bounds the gradient is 0.
var (
	_ = define(Row{
		Name: "clamp", Sig: "torch.clamp(input, min: float? = None, max: float? = None)", Args: &ClampArgs{}, Run: func(c *Call) {
			c.bounded()
			mapOf(c)
		}, Save: []Save{In(0)}, Node: "ClampBackward1", Grad: gradClamp,
		Source: "torch/csrc/autograd/FunctionsManual.cpp: clamp_backward",
	})
	clampMin = define(Row{
		Name: "clamp_min", Sig: "Tensor.clamp_min(self, min: float)", Args: &ClampArgs{}, Run: mapOf, Save: []Save{In(0)},
		Node: "ClampMinBackward0", Grad: gradClamp, Source: "tools/autograd/derivatives.yaml: clamp_min",
	})
	_ = define(Row{
		Name: "clamp_max", Sig: "Tensor.clamp_max(self, max: float)", Args: &ClampArgs{}, Run: mapOf, Save: []Save{In(0)},
		Node: "ClampMaxBackward0", Grad: gradClamp, Source: "tools/autograd/derivatives.yaml: clamp_max",
	})
)

// Their in-place forms.
var (
	_               = clampInPlace("clamp_", "ClampBackward1")
	_               = clampInPlace("clamp_max_", "ClampMaxBackward0")
	clampMinInPlace = clampInPlace("clamp_min_", "ClampMinBackward0")
)

func clampInPlace(name, node string) *Row {
	return define(Row{
		Name: name, Args: &ClampArgs{}, Run: func(c *Call) { c.bounded() }, InPlace: true, Save: []Save{In(0)}, Node: node, Grad: gradClamp,
		Source: "torch/csrc/autograd/FunctionsManual.cpp: clamp_backward",
	})
}

// bounded refuses a clamp without bounds.
func (c *Call) bounded() {
	if a := c.Args.(*ClampArgs); a.Min == nil && a.Max == nil {
		c.Fail("clamp needs min, max or both")
	}
}

// gradClamp is where(within the bounds, grad, 0).
func gradClamp(b *Back) {
	a, x, g := b.Args.(*ClampArgs), b.SavedIn[0], b.Grads[0]
	zero := b.Local(b.NewShape(g.DType))
	within := b.Local(b.New(x.LikeDense(), tensor.Bool))
	if a.Min != nil && a.Max != nil { // the second comparison is and-ed into the first
		b.Local(b.New(x.LikeDense(), tensor.Bool))
	}
	b.Set(0, b.Do1(whereSelf, nil, within, g, zero))
}
