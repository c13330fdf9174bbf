package optim

import (
	"errors"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// muonArgs are the arguments of Muon.
type muonArgs struct {
	Common
	LR           float64   `arg:"lr"`
	WeightDecay  float64   `arg:"weight_decay"`
	Momentum     float64   `arg:"momentum"`
	Nesterov     bool      `arg:"nesterov"`
	Coefficients []float64 `arg:"ns_coefficients"`
	Eps          float64   `arg:"eps"`
	Steps        int64     `arg:"ns_steps"`
	Adjust       string    `arg:"adjust_lr_fn"`
}

// Muon orthogonalizes the momentum of matrices in bfloat16 by Newton-Schulz
// iterations, parameter by parameter (torch/optim/_muon.py). It is derived from
// its source: it is younger than the PyTorch of the recordings.
var Muon = define(Row{
	Name: "Muon", Args: &muonArgs{}, LoopByDefault: true, GPUOnly: true, RefuseSharded: wholeOnly, Feature: "Muon",
	Sig: "torch.optim.Muon(lr: float = 0.001, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True, " +
		"ns_coefficients: floats = (3.4445, -4.775, 2.0315), eps: float = 1e-07, ns_steps: int = 5, adjust_lr_fn: str(original|match_rms_adamw)? = None)",
	Bounds: []bound{
		nonNegative("lr"), nonNegative("momentum"), nonNegative("weight_decay"), {arg: "ns_coefficients", n: 3, ok: func(float64) bool { return true }},
		{arg: "ns_steps", ok: func(x float64) bool { return x >= 0 && x < 100 }, want: "from 0 to 99"},
	},
	RefuseParam: func(size []int64) error {
		if len(size) != 2 {
			return errors.New("only matrices can be trained by Muon")
		}
		return nil
	},
	Update:  arrays[muonArgs](muonUpdate),
	Init:    func(c *Call, p *Param) { p.keep("momentum", c.Persist(c.like(p.Grad))) },
	ForLoop: muonLoop,
	Note: func(any) string {
		return "Muon: its steps are derived from its source and were not compared with a recording of the PyTorch that has it"
	},
})

func muonLoop(c *Call, ps []*Param) {
	a := c.Args.(*muonArgs)
	update := c.local()
	for _, p := range ps {
		momentum := p.State[0]
		if a.Nesterov {
			update.set(c.like(p.Grad)) // grad.lerp(buf, momentum)
			momentum = update.one()
		} else {
			update.clear()
		}
		update.set(c.orthogonalized(momentum, a.Steps))
	}
}

// orthogonalized is _zeropower_via_newtonschulz.
func (c *Call) orthogonalized(g *op.Tensor, steps int64) *op.Tensor {
	x := c.Keep(g)
	then := func(t *op.Tensor) {
		c.Drop(x)
		x = t
	}
	if g.DType != tensor.BFloat16 {
		then(c.Do(aten.ToCopy, &aten.ToCopyArgs{DType: tensor.BFloat16}, g)[0])
	}
	tall := g.Dim(0) > g.Dim(1)
	if tall {
		then(c.transposed(x))
	}
	norm := c.norm(x)
	bound := c.like(norm) // norm.clamp(min=eps)
	c.Drop(norm, bound)
	var gram, update *op.Tensor
	for range steps {
		t := c.transposed(x)
		next := c.Do(aten.Matmul, nil, x, t)[0]
		c.Drop(t, gram)
		gram = next
		next = c.Do(aten.Addmm, nil, gram, gram, gram)[0]
		c.Drop(update)
		update = next
		then(c.Do(aten.Addmm, nil, x, update, x)[0])
	}
	if tall {
		then(c.transposed(x))
	}
	c.Drop(gram, update)
	return x
}

// transposed is t.T.
func (c *Call) transposed(t *op.Tensor) *op.Tensor { return c.Alias(t, t.Transpose(0, 1), t.DType) }

// muonUpdate is _single_tensor_muon: the momentum of a matrix, orthogonalized in
// bfloat16 by Newton-Schulz iterations.
func muonUpdate(a *muonArgs, s *stepped) {
	rows, columns := s.size[0], s.size[1]
	momentum := s.state("momentum")
	lerp(momentum, 1-a.Momentum, func(i int) float64 { return s.g[i] })
	update := slices.Clone(momentum)
	if a.Nesterov {
		copy(update, s.g)
		lerp(update, a.Momentum, func(i int) float64 { return momentum[i] })
	}
	x := inBFloat16(update)
	m, n := rows, columns
	if rows > columns {
		x, m, n = turned(x, rows, columns), columns, rows
	}
	size := inBFloat16([]float64{max(array.Norm(x, 2), a.Eps)})[0]
	for i := range x {
		x[i] /= size
	}
	x = inBFloat16(x)
	for range a.Steps {
		gram := inBFloat16(product(x, turned(x, m, n), m, n, m))
		poly := product(gram, gram, m, m, m)
		for i := range poly {
			poly[i] = a.Coefficients[1]*gram[i] + a.Coefficients[2]*poly[i]
		}
		next := product(inBFloat16(poly), x, m, m, n)
		for i := range next {
			next[i] += a.Coefficients[0] * x[i]
		}
		x = inBFloat16(next)
	}
	if rows > columns {
		x = turned(x, m, n)
	}
	ratio := math.Sqrt(max(1, float64(rows)/float64(columns)))
	if a.Adjust == "match_rms_adamw" {
		ratio = 0.2 * math.Sqrt(float64(max(rows, columns)))
	}
	scale(s.p, 1-a.LR*a.WeightDecay)
	s.add(x, -a.LR*ratio)
}

// inBFloat16 rounds numbers.
func inBFloat16(v []float64) []float64 {
	return tensor.Decode(tensor.BFloat16, tensor.Encode(tensor.BFloat16, v))
}

// turned is a matrix of rows and columns the other way round.
func turned(v []float64, rows, columns int) []float64 {
	out := make([]float64, len(v))
	for i := range rows {
		for j := range columns {
			out[j*rows+i] = v[i*columns+j]
		}
	}
	return out
}

// product is a times b, of m×k and k×n elements.
func product(a, b []float64, m, k, n int) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for l := range k {
			for j := range n {
				out[i*n+j] += a[i*k+l] * b[l*n+j]
			}
		}
	}
	return out
}
