package kerneltest

import (
	"math/rand/v2"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// row says, of a kernel, how its operands are drawn and what it must give.
type row struct {
	draw   func(g *generator)
	expect func(c *calculation) // writes what the kernel does
	factor float64              // of Case; 0: usual
}

// usual is how many units in the last place a function of one or a few numbers
// may be off.
const usual = 16

// rows is the table, by kernel.
var rows = map[*kernel.Kernel]row{}

func init() {
	for _, t := range []map[*kernel.Kernel]row{unaryRows, gradRows, binaryRows, randomRows, reduceRows, gemmRows,
		softmaxRows, layerRows, batchRows, convRows, poolRows, lookupRows, alongRows, attentionRows, optimizerRows} {
		for k, r := range t {
			rows[k] = r
		}
	}
}

// rowOf is a kernel's row.
func rowOf(k *kernel.Kernel) row {
	if k.Formula != nil {
		return row{draw: drawFormula, expect: expectFormula}
	}
	return rows[k]
}

// Random draws a call of a kernel whose floating operands are of type d; size
// bounds the elements of the larger operands.
func Random(k *kernel.Kernel, d tensor.DType, rng *rand.Rand, size int64) *Case {
	r := rowOf(k)
	g := &generator{rng: rng, size: size, d: d, calculation: newCalculation(k), arrays: map[string]Array{}}
	r.draw(g)
	c := &Case{Kernel: k, Factor: usual}
	if r.factor > 0 {
		c.Factor = r.factor
	}
	if d == tensor.Float64 { // what is compared with is no more exact
		c.Factor += float64(size)
	}
	for _, name := range names(k) {
		c.T = append(c.T, g.arrays[name])
	}
	if y := &c.T[0]; k.Kind == kernel.Map && k.Outputs == 1 && len(c.T) > 1 && c.T[1].DType == y.DType && c.T[1].dense() && g.chance(4) {
		*y = c.T[1] // in place
	}
	for _, name := range k.Ints {
		c.I = append(c.I, g.i[name])
	}
	for _, name := range k.Floats {
		c.F = append(c.F, g.f[name])
	}
	return c
}

// names are those of a kernel's operands.
func names(k *kernel.Kernel) []string {
	out := make([]string, len(k.Tensors))
	for i, n := range k.Tensors {
		out[i] = strings.TrimSuffix(n, "?")
	}
	return out
}

// calculation is a call that is computed in float64.
type calculation struct {
	k *kernel.Kernel
	t map[string]*operand // nil: absent
	i map[string]int64
	f map[string]float64
}

func newCalculation(k *kernel.Kernel) calculation {
	return calculation{k, map[string]*operand{}, map[string]int64{}, map[string]float64{}}
}

// expect computes what the kernel must give, by operand.
func (c *Case) expect() []*operand {
	x := newCalculation(c.Kernel)
	for i, name := range names(c.Kernel) {
		if a := c.result(i, c.T[i]); !a.Absent() {
			x.t[name] = a.operand()
		}
	}
	for i, name := range c.Kernel.Ints {
		x.i[name] = c.I[i]
	}
	for i, name := range c.Kernel.Floats {
		x.f[name] = c.F[i]
	}
	rowOf(c.Kernel).expect(&x)
	var out []*operand
	for _, name := range names(c.Kernel) {
		out = append(out, x.t[name])
	}
	return out
}

// generator draws the operands and numbers of a call.
type generator struct {
	calculation
	rng    *rand.Rand
	size   int64
	d      tensor.DType
	arrays map[string]Array
}

// forward computes another kernel from what was drawn so far, for a derivative
// that reads what the forward pass gave; out are its results by name, which it
// is told the sizes of.
func (g *generator) forward(k *kernel.Kernel, out map[string][]int64) map[string]*operand {
	c := newCalculation(k)
	for _, name := range names(k) {
		c.t[name] = g.t[name]
	}
	for name, size := range out {
		c.t[name] = empty(size...)
	}
	c.i, c.f = g.i, g.f
	rowOf(k).expect(&c)
	return c.t
}

// A distribution draws an element.
type distribution func(r rng) float64

type rng = *rand.Rand

func normal(r rng) float64       { return r.NormFloat64() }
func positive(r rng) float64     { return 0.1 + 3*r.Float64() }
func unit(r rng) float64         { return 0.01 + 0.98*r.Float64() }
func few(r rng) float64          { return float64(r.IntN(5) - 2) }
func truth(r rng) float64        { return float64(r.IntN(2)) }
func nonzero(r rng) float64      { return positive(r) * (2*truth(r) - 1) }
func below(n int64) distribution { return func(r rng) float64 { return float64(r.Int64N(n)) } }

// among draws one of some numbers.
func among(v ...float64) distribution { return func(r rng) float64 { return v[r.IntN(len(v))] } }

// indices draws a place below n or, now and then, another number.
func indices(n int64, others float64) distribution {
	return func(r rng) float64 {
		if r.IntN(4) == 0 {
			return others
		}
		return float64(r.Int64N(n))
	}
}

// dim draws a size of at least 1: 1, an odd one, or a larger one.
func (g *generator) dim(most int64) int64 {
	bounds := []int64{1, 3, 7, 20, 70, 200, 5000}
	return 1 + g.rng.Int64N(max(1, min(most, bounds[g.rng.IntN(len(bounds))])))
}

// dims draws so many sizes with at most g.size elements.
func (g *generator) dims(rank int) []int64 { return g.within(rank, g.size) }

// within draws so many sizes with at most so many elements.
func (g *generator) within(rank int, rest int64) []int64 {
	out := make([]int64, rank)
	for _, i := range g.rng.Perm(rank) {
		out[i] = g.dim(rest)
		rest /= out[i]
	}
	return out
}

// shape draws the sizes of an operand of any rank, at times without elements.
func (g *generator) shape() []int64 {
	out := g.dims(g.rng.IntN(6))
	if len(out) > 0 && g.rng.IntN(40) == 0 {
		out[g.rng.IntN(len(out))] = 0
	}
	return out
}

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.rng.IntN(n) == 0 }

// in draws an operand that is read.
func (g *generator) in(name string, draw distribution, size ...int64) *operand {
	return g.inAs(name, g.d, draw, size...)
}

func (g *generator) inAs(name string, d tensor.DType, draw distribution, size ...int64) *operand {
	return g.put(name, g.layout(d, size, true), g.draw(draw, size))
}

// state draws an operand that is read and written.
func (g *generator) state(name string, d tensor.DType, draw distribution, size ...int64) {
	g.put(name, g.layout(d, size, false), g.draw(draw, size))
}

func (g *generator) draw(draw distribution, size []int64) []float64 {
	v := make([]float64, tensor.D(size...).Numel())
	for i := range v {
		v[i] = draw(g.rng)
	}
	return v
}

// given is an operand with elements that were computed.
func (g *generator) given(name string, d tensor.DType, o *operand) *operand {
	return g.put(name, g.layout(d, o.size, false), o.v)
}

func (g *generator) put(name string, a Array, v []float64) *operand {
	a.fill(v)
	g.arrays[name] = a
	g.t[name] = a.operand()
	return g.t[name]
}

// out makes an operand that is written, with nothing in it yet.
func (g *generator) out(name string, size ...int64) { g.outAs(name, g.d, size...) }

func (g *generator) outAs(name string, d tensor.DType, size ...int64) {
	g.arrays[name] = g.layout(d, size, false)
}

// layout draws how elements lie: contiguous, the dimensions in another order,
// with gaps and, of an operand that is only read, repeated.
func (g *generator) layout(d tensor.DType, size []int64, repeat bool) Array {
	n := len(size)
	a := Array{DType: d, Size: tensor.D(size...), Stride: tensor.D(size...)}
	order := make([]int, n) // from the outermost to the innermost
	for i := range order {
		order[i] = i
	}
	if !g.chance(2) {
		order = g.rng.Perm(n)
	}
	gaps, repeated := g.chance(4), repeat && g.chance(6)
	if gaps {
		a.Offset = g.rng.Int64N(6)
	}
	stride := int64(1)
	if gaps && g.chance(2) {
		stride += g.rng.Int64N(3)
	}
	elements := int64(1)
	for i := n - 1; i >= 0; i-- {
		k := order[i]
		if repeated && g.chance(2) {
			a.Stride = a.Stride.Set(k, 0)
			continue
		}
		a.Stride = a.Stride.Set(k, stride)
		elements += stride * (size[k] - 1)
		stride *= max(size[k], 1)
		if gaps {
			stride += g.rng.Int64N(3)
		}
	}
	if a.Size.Numel() == 0 {
		elements = 0
	}
	a.Storage = make([]byte, (a.Offset+max(elements, 0))*d.Size())
	for i := range a.Storage {
		a.Storage[i] = poison
	}
	return a
}
