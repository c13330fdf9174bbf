package optim

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// adafactorArgs are the arguments of Adafactor.
type adafactorArgs struct {
	Common
	LR          float64   `arg:"lr"`
	Beta2Decay  float64   `arg:"beta2_decay"`
	Eps         []float64 `arg:"eps"`
	D           float64   `arg:"d"`
	WeightDecay float64   `arg:"weight_decay"`
}

// Adafactor keeps the variance of a matrix, or of a batch of them, as a column
// and a row, that of a vector whole. It is the one optimizer that loops over
// the parameters unless foreach is asked for (torch/optim/_adafactor.py).
// PyTorch's default of eps is (None, 0.001): of the type for the first.
var Adafactor = define(Row{
	Name: "Adafactor", Args: &adafactorArgs{}, LoopByDefault: true, RefuseSharded: wholeOnly,
	Sig: "torch.optim.Adafactor(lr: float = 0.01, beta2_decay: float = -0.8, eps: floats? = None, d: float = 1.0, weight_decay: float = 0.0, *, " +
		"foreach: bool? = None, maximize: bool = False)",
	Bounds: []bound{
		nonNegative("lr"), nonNegative("weight_decay"), {arg: "eps", n: 2, ok: func(x float64) bool { return x >= 0 }, want: "at least 0"},
		{arg: "beta2_decay", ok: func(x float64) bool { return x <= 0 }, want: "at most 0"},
		{arg: "d", ok: func(x float64) bool { return x >= 1 }, want: "at least 1"},
	},
	Update: arrays[adafactorArgs](adafactorUpdate),
	Init:   adafactorInit, Foreach: adafactorForeach, ForLoop: adafactorLoop,
})

func adafactorInit(c *Call, p *Param) {
	g := p.Grad
	if g.Rank() < 2 {
		p.keep("variance", c.Persist(c.New(g.LikeDense(), g.DType)))
		return
	}
	for i, name := range []string{"row", "column"} {
		size := g.Size.Set(g.Rank()-1-i, 1)
		p.keep(name, c.Persist(c.New(tensor.Contiguous(size), g.DType)))
	}
}

// adafactorUpdate is _single_tensor_adafactor.
func adafactorUpdate(a *adafactorArgs, s *stepped) {
	eps1, eps2 := s.dtype.Epsilon(), 1e-3
	if a.Eps != nil {
		eps1, eps2 = a.Eps[0], a.Eps[1]
	}
	weight := math.Pow(s.step, a.Beta2Decay)
	alpha := max(eps2, rms(s.p)) * min(a.LR, 1/math.Sqrt(s.step))
	scale(s.p, 1-a.LR*a.WeightDecay)
	var update []float64
	if len(s.size) > 1 {
		update = s.factored(weight, 0, eps1)
	} else {
		update = s.variance(weight, 0)
	}
	for i, v := range update {
		update[i] = s.g[i] / math.Sqrt(max(v, eps1*eps1))
	}
	s.add(update, -alpha/max(1, rms(update)/a.D))
}

// variance moves the state of that name towards the squares of the gradient, and
// returns a copy.
func (s *stepped) variance(weight, eps float64) []float64 {
	v := s.state("variance")
	lerp(v, weight, func(i int) float64 { return s.g[i]*s.g[i] + eps })
	return slices.Clone(v)
}

// factored is variance where states of rows and columns keep it. The mean of the rows
// is at least least.
func (s *stepped) factored(weight, eps, least float64) []float64 {
	row, column := s.meanSquares(eps)
	rows, columns := s.state("row"), s.state("column")
	lerp(rows, weight, func(i int) float64 { return row[i] })
	lerp(columns, weight, func(i int) float64 { return column[i] })
	return s.outer(rows, columns, least)
}

// matrices sees a gradient as matrices over its last two dimensions: f gets the
// place of the first element of each, and its sizes.
func (s *stepped) matrices(f func(k, at, rows, columns int)) {
	n := len(s.size)
	rows, columns := s.size[n-2], s.size[n-1]
	for k := range array.Numel(s.size[:n-2]) {
		f(k, k*rows*columns, rows, columns)
	}
}

// meanSquares are the means of (g² + eps) over the columns and over the rows of each
// matrix.
func (s *stepped) meanSquares(eps float64) (row, column []float64) {
	s.matrices(func(_, at, rows, columns int) {
		r, c := make([]float64, rows), make([]float64, columns)
		for i := range rows {
			for j := range columns {
				g := s.g[at+i*columns+j]
				v := g*g + eps
				r[i] += v / float64(columns)
				c[j] += v / float64(rows)
			}
		}
		row, column = append(row, r...), append(column, c...)
	})
	return row, column
}

// outer makes of states of rows and columns what they say of each element, the mean
// of the rows at least least.
func (s *stepped) outer(row, column []float64, least float64) []float64 {
	out := make([]float64, len(s.g))
	s.matrices(func(k, at, rows, columns int) {
		r, c := row[k*rows:][:rows], column[k*columns:][:columns]
		mean := 0.0
		for _, v := range r {
			mean += v / float64(rows)
		}
		mean = max(mean, least)
		for i := range rows {
			for j := range columns {
				out[at+i*columns+j] = r[i] * c[j] / mean
			}
		}
	})
	return out
}

func adafactorLoop(c *Call, ps []*Param) {
	a := c.Args.(*adafactorArgs)
	grad, rowMean, colMean, squared, update := c.local(), c.local(), c.local(), c.local(), c.local()
	for _, p := range ps {
		grad.gradientAtOnce(p, a.Maximize, false)
		c.Drop(c.norm(p.T))
		g := grad.of(p)
		var estimate *op.Tensor
		if g.Rank() > 1 {
			rowMean.set(c.norm(g, -1))
			colMean.set(c.norm(g, -2))
			estimate = c.product(p)
			c.Drop(c.columnMean(p))
		} else {
			squared.set(c.like(g))
			estimate = c.like(p.State[0])
		}
		update.set(estimate) // var_estimate, which holds the same tensor, was rebound just before
		c.Drop(c.norm(update.held[0]))
	}
}

// adafactorForeach takes matrices and vectors apart, in the order of first
// appearance.
func adafactorForeach(c *Call, ps []*Param) {
	a := c.Args.(*adafactorArgs)
	var kinds [2][]*Param
	for _, p := range ps {
		k := 0
		if (p.Grad.Rank() > 1) != (ps[0].Grad.Rank() > 1) {
			k = 1
		}
		kinds[k] = append(kinds[k], p)
	}
	grads, updates := c.local(), c.local()
	for _, ps := range kinds {
		if len(ps) == 0 {
			continue
		}
		grads.gradients(ps, a.Maximize, false)
		of := make([]*op.Tensor, len(ps))
		for i, p := range ps {
			of[i] = p.Grad
			if a.Maximize {
				of[i] = grads.held[i]
			}
			c.Drop(c.norm(p.T))
		}
		each := func(f func(i int) *op.Tensor) []*op.Tensor {
			out := make([]*op.Tensor, len(ps))
			for i := range ps {
				out[i] = f(i)
			}
			return out
		}
		var estimates []*op.Tensor
		if of[0].Rank() > 1 {
			c.dropList(each(func(i int) *op.Tensor { return c.norm(of[i], -1) }))
			c.dropList(each(func(i int) *op.Tensor { return c.norm(of[i], -2) }))
			estimates = each(func(i int) *op.Tensor { return c.product(ps[i]) })
			c.dropList(each(func(i int) *op.Tensor { return c.columnMean(ps[i]) }))
		} else {
			c.dropList(each(func(i int) *op.Tensor { return c.like(of[i]) }))
			estimates = each(func(i int) *op.Tensor { return c.like(ps[i].State[0]) })
		}
		updates.set(estimates...)
		for _, u := range updates.held {
			c.Drop(c.norm(u))
		}
	}
}

// norm is t.norm(2), or along a dimension that is kept torch.norm.
func (c *Call) norm(t *op.Tensor, dim ...int64) *op.Tensor {
	two := 2.0
	return c.Do(aten.VectorNorm, &aten.NormArgs{P: &two, ReduceArgs: aten.ReduceArgs{Dim: dim, KeepDim: len(dim) > 0}}, t)[0]
}

// product is row_var @ col_var.
func (c *Call) product(p *Param) *op.Tensor {
	return c.Do(aten.Matmul, nil, p.State[0], p.State[1])[0]
}

// columnMean is row_var.mean(dim=-2, keepdim=True).
func (c *Call) columnMean(p *Param) *op.Tensor {
	return c.Do(aten.Mean, &aten.ReduceArgs{Dim: []int64{-2}, KeepDim: true}, p.State[0])[0]
}
