package aten

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// TestSpecialFunctions holds functions that Go's library lacks against values of
// scipy.special.
func TestSpecialFunctions(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"digamma(1)", digamma(1), -0.5772156649015329},
		{"digamma(0.1)", digamma(0.1), -10.423754940411076},
		{"digamma(-1.5)", digamma(-1.5), 0.7031566406452432},
		{"digamma(25)", digamma(25), 3.198742512851974}, // the 24th harmonic number less that of Euler
		{"trigamma(1)", trigamma(1), math.Pi * math.Pi / 6},
		{"trigamma(0.5)", trigamma(0.5), math.Pi * math.Pi / 2},
		{"trigamma(-0.5)", trigamma(-0.5), math.Pi*math.Pi/2 + 4},
		{"floor_divide(-7, 2)", floorDivide(-7, 2), -4},
		{"floor_divide(7, -2)", floorDivide(7, -2), -4},
		{"remainder(-7, 2)", remainder(-7, 2), 1},
		{"remainder(7, -2)", remainder(7, -2), -1},
	} {
		if math.Abs(c.got-c.want) > 1e-12*max(1, math.Abs(c.want)) {
			t.Errorf("%s is %.16g, not %.16g", c.name, c.got, c.want)
		}
	}
}

// paper is a machine for functions of single elements, which notes tensors.
type paper map[*op.Tensor][]float64

var errKernel = errors.New("computed by a kernel")

func (p paper) Apply(k *kernel.Kernel, y *op.Tensor, in []*op.Tensor, numbers ...float64) error {
	var operands [][]float64
	for _, t := range in {
		operands = append(operands, p[t])
	}
	p[y] = kerneltest.Map(k, operands, numbers)
	return nil
}

func (p paper) Launch(*kernel.Kernel, []kernel.Tensor, []int64, ...float64) error { return errKernel }

func (p paper) At(*op.Tensor, tensor.Layout) kernel.Tensor { return kernel.Tensor{} }

func (p paper) Draw() int64 { return 0 }

func (p paper) Note(*op.Tensor, any) {}

func (p paper) Noted(*op.Tensor) any { return nil }

func (p paper) OnHost(f func(a op.Arrays)) error { f(p); return nil }

func (p paper) Array(*op.Tensor) *array.Array { panic("a function of single elements asks for sizes") }

func (p paper) Fail(err error) { panic(err) }

func (p paper) Wanted(b *op.Back, i int) *op.Tensor { return b.Results[i] }

func (p paper) Get(t *op.Tensor) []float64 { return slices.Clone(p[t]) }

func (p paper) Like(t *op.Tensor, _ tensor.Dims) []float64 { return slices.Clone(p[t]) }

func (p paper) Put(t *op.Tensor, v []float64) { p[t] = v }

func (p paper) Singles(*op.Tensor) []float32 { panic("a function of single elements asks for float32") }

func (p paper) PutSingles(*op.Tensor, []float32) {
	panic("a function of single elements gives float32")
}

func (p paper) PutSummed(t *op.Tensor, v []float64, _ tensor.Dims) { p[t] = v }

// tensor notes a vector.
func (p paper) tensor(v []float64) *op.Tensor {
	t := &op.Tensor{Layout: tensor.Contiguous(tensor.D(int64(len(v)))), DType: tensor.Float64}
	p[t] = slices.Clone(v)
	return t
}

// domains are where functions are defined that are not around 0, and positive the
// points of most of them; within those of functions that end at 1.
var (
	around, positive, within = []float64{0.35, 0.8, -0.45}, []float64{0.35, 0.8, 1.7}, []float64{0.2, 0.55, 0.9}

	domains = map[*op.Op][]float64{
		Acosh: {1.3, 2, 3.5}, Log10: positive, Log1p: positive, Log2: positive, Lgamma: positive, Digamma: positive, PowTensor: positive, Xlogy: positive,
		Logit: within, Log: positive, Sqrt: positive, Rsqrt: positive, SqrtOfLoss: positive,
	}
	ofTest = map[*op.Op]any{
		Celu: &AlphaArgs{Alpha: 0.7}, Elu: &AlphaArgs{Alpha: 0.7}, Threshold: &ThresholdArgs{Threshold: 0.1, Value: 3}, Hardshrink: &ShrinkArgs{Lambd: 0.5},
		Softplus: &SoftplusArgs{Beta: 1.3, Threshold: 20}, LeakyRelu: &SlopeArgs{Slope: 0.1}, Hardtanh: &RangeArgs{Min: -0.4, Max: 0.5},
		Softshrink: &ShrinkArgs{Lambd: 0.5}, Addcmul: &ValueArgs{Value: 1.7}, Addcdiv: &ValueArgs{Value: 1.7},
		PowBase: &PowBaseArgs{Base: op.Number{Set: true, Value: 1.3}}, Clamp: &ClampArgs{Min: op.Number{Set: true, Value: -0.4}, Max: op.Number{Set: true, Value: 0.5}},
	}
)

// TestDerivatives holds the derivative of each function of single elements, of which
// the formulas of derivatives.yaml are most, against differences of its values.
func TestDerivatives(t *testing.T) {
	held := 0
	for _, r := range Rows() {
		of := r
		if r.Of != nil {
			of = r.Of
		}
		if r.Eval == nil || !r.Eval.Single || r.Eval.Backward == nil {
			continue
		}
		points, args := domains[of], ofTest[of]
		if points == nil {
			points = around
		}
		if args == nil {
			args = r.Args
		}
		inputs := 1
		if sig := of.Sig; sig != "" {
			s, err := op.ParseSig(sig)
			if err != nil {
				t.Fatal(err)
			}
			inputs = len(slices.DeleteFunc(s.Params, func(p op.Param) bool { return !p.IsTensor() }))
		} else if of == PowTensor || of == Xlogy || of == PreluKernel || strings.HasSuffix(of.Name, "_backward") {
			inputs = 2
		}
		in := make([][]float64, inputs)
		for k := range in {
			for i := range points {
				in[k] = append(in[k], points[(i+k)%len(points)])
			}
		}
		held++
		hold(t, r, args, in)
		if e := r.Eval.ByFormula; e != nil {
			by := *r
			by.Eval = e
			hold(t, &by, args, in)
		}
	}
	if held < 125 {
		t.Errorf("%d operators only", held)
	}
}

// grad is the incoming gradient.
const grad = 0.75

// hold compares the gradients of all inputs with differences.
func hold(t *testing.T, r *op.Op, args any, in [][]float64) {
	t.Helper()
	got, err := derivative(r, args, in)
	if err != nil {
		t.Errorf("%s: %v", r.Name, err)
		return
	}
	for k := range in {
		for i, before := range got[k] {
			if want := grad * slopeOf(t, r, args, in, k, i); !(math.Abs(before-want) <= 1e-6*max(1, math.Abs(want))) {
				t.Errorf("%s of %v by input %d is %.9g, not %.9g", r.Name, in, k, before, want)
			}
		}
	}
}

// derivative computes the gradients of all inputs.
func derivative(r *op.Op, args any, in [][]float64) ([][]float64, error) {
	p := paper{}
	out, err := values(p, r, args, in)
	if err != nil {
		return nil, err
	}
	n := len(in[0])
	b := &op.Back{Call: op.Call{Op: r, Args: args}, Grads: []*op.Tensor{p.tensor(slices.Repeat([]float64{grad}, n))}}
	b.OutM = []op.Meta{{Layout: out.Layout}}
	ins, outs := make([]*op.Tensor, len(in)), make([]*op.Tensor, 1)
	for _, s := range r.Saves(len(in)) {
		switch {
		case s.Out:
			outs[s.Index] = out
		case s.Index < len(in):
			ins[s.Index] = p.tensor(in[s.Index])
		}
	}
	b.Hold(ins, outs)
	for range in {
		b.Results = append(b.Results, p.tensor(make([]float64, n)))
		b.Needs = append(b.Needs, true)
	}
	if err := r.Eval.Backward(p, b); err != nil {
		return nil, err
	}
	var grads [][]float64
	for _, t := range b.Results {
		grads = append(grads, p[t])
	}
	return grads, nil
}

// values computes the result.
func values(p paper, r *op.Op, args any, in [][]float64) (*op.Tensor, error) {
	c := &op.Call{Op: r, Args: args, Out: []*op.Tensor{p.tensor(in[0]), p.tensor(in[0])}}
	for _, v := range in {
		c.In = append(c.In, p.tensor(v))
	}
	err := r.Eval.Forward(p, c)
	return c.Target(), err
}

// slopeOf is how the result changes with element i of input k.
func slopeOf(t *testing.T, r *op.Op, args any, in [][]float64, k, i int) float64 {
	const h = 1e-5
	at := func(d float64) float64 {
		moved := make([][]float64, len(in))
		for k := range in {
			moved[k] = slices.Clone(in[k])
		}
		moved[k][i] += d
		p := paper{}
		out, err := values(p, r, args, moved)
		if err != nil {
			t.Fatal(err)
		}
		return p[out][i]
	}
	return (at(h) - at(-h)) / (2 * h)
}
