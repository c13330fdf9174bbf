package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// ClampArgs are the bounds of clamp, which are not set where there is none.
type ClampArgs struct {
	Min Number `arg:"min"`
	Max Number `arg:"max"`
}

// clamp keeps within two bounds; the upper one counts where they cross.
var clamp = element{
	of: func(x float64, p []float64) float64 {
		if x < p[0] {
			x = p[0]
		}
		if x > p[1] {
			x = p[1]
		}
		return x
	},
	slope: func(x, _ float64, p []float64) float64 {
		return array.Truth(!(x < p[0]) && !(x > p[1]) && !math.IsNaN(x))
	},
	numbers: numbersOf(func(a *ClampArgs) []float64 { return []float64{a.Min.orNaN(), a.Max.orNaN()} }),
}

// clampRun makes the result. Bounds that are floats make integers float32.
func clampRun(c *Call) {
	a := c.Args.(*ClampArgs)
	c.convertedMap(weak(weak(c.In[0].DType, a.Min), a.Max))
}

// atLeast are the arguments of a clamp to a least number.
func atLeast(n float64) *ClampArgs { return &ClampArgs{Min: Number{Set: true, Float: true, Value: n}} }

// The clamps to numbers. Outside of the bounds the gradient is 0.
var (
	Clamp = define(Op{
		Name: "clamp", Sig: "torch.clamp(input, min: number? = None, max: number? = None)", Args: &ClampArgs{}, Run: func(c *Call) {
			c.bounded()
			clampRun(c)
		}, Save: []Save{In(0)}, Node: "ClampBackward1", Grad: gradClamp, Eval: clamp.eval(),
		Source: "torch/csrc/autograd/FunctionsManual.cpp: clamp_backward",
	})
	ClampMin = define(Op{
		Name: "clamp_min", Sig: "Tensor.clamp_min(self, min: number)", Args: &ClampArgs{}, Run: clampRun, Save: []Save{In(0)},
		Node: "ClampMinBackward0", Grad: gradClamp, Eval: clamp.eval(), Source: "tools/autograd/derivatives.yaml: clamp_min",
	})
	ClampMax = define(Op{
		Name: "clamp_max", Sig: "Tensor.clamp_max(self, max: number)", Args: &ClampArgs{}, Run: clampRun, Save: []Save{In(0)},
		Node: "ClampMaxBackward0", Grad: gradClamp, Eval: clamp.eval(), Source: "tools/autograd/derivatives.yaml: clamp_max",
	})
)

// Their in-place forms.
var (
	ClampInPlace    = clampInPlace(Clamp)
	ClampMaxInPlace = clampInPlace(ClampMax)
	ClampMinInPlace = clampInPlace(ClampMin)
)

func clampInPlace(of *Op) *Op {
	return define(Op{
		Name: of.Name + "_", Of: of, Args: &ClampArgs{}, Run: func(c *Call) { c.bounded() }, InPlace: true, Save: []Save{In(0)}, Node: of.Node, Grad: gradClamp, Eval: of.Eval,
		Source: "torch/csrc/autograd/FunctionsManual.cpp: clamp_backward",
	})
}

// bounded refuses a clamp without bounds.
func (c *Call) bounded() {
	if a := c.Args.(*ClampArgs); !a.Min.Set && !a.Max.Set {
		c.Fail("clamp needs min, max or both")
	}
}

// gradClamp is where(within the bounds, grad, 0).
func gradClamp(b *Back) {
	a, x, g := b.Args.(*ClampArgs), b.SavedIn(0), b.Grads[0]
	zero := b.Local(b.NewShape(g.DType))
	within := b.Local(b.New(x.LikeDense(), tensor.Bool))
	if a.Min.Set && a.Max.Set { // the second comparison is and-ed into the first
		b.Local(b.New(x.LikeDense(), tensor.Bool))
	}
	b.Set(0, b.Do1(WhereSelf, nil, within, g, zero))
}
