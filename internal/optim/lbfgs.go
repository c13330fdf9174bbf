package optim

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// lbfgsArgs are the arguments of LBFGS.
type lbfgsArgs struct {
	Common
	MaxIter     int64   `arg:"max_iter"`
	MaxEval     *int64  `arg:"max_eval"`
	HistorySize int64   `arg:"history_size"`
	LineSearch  *string `arg:"line_search_fn"`

	LR              float64 `arg:"lr"`
	ToleranceGrad   float64 `arg:"tolerance_grad"`
	ToleranceChange float64 `arg:"tolerance_change"`
}

// LBFGS works on all parameters as one vector: its history holds the last
// differences of gradients and steps (torch/optim/lbfgs.py).
//
// How far a step goes depends on numbers. What is modelled is a run that makes
// progress: iterations go on to max_iter or max_eval, each adds to the history,
// and the first point of a line search satisfies the Wolfe conditions. A run that
// ends iterations early takes less, one whose line searches go on takes three
// vectors more for a while. Where the step is computed, numbers decide
// (lbfgs_numbers.go), but for those vectors.
var LBFGS = define(Row{
	Name: "LBFGS", Args: &lbfgsArgs{}, OneGroup: true, Closure: true, GPUOnly: true, RefuseSharded: wholeOnly, Whole: lbfgsStep,
	Sig: "torch.optim.LBFGS(lr: float = 1, max_iter: int = 20, max_eval: int? = None, tolerance_grad: float = 1e-07, tolerance_change: float = 1e-09, " +
		"history_size: int = 100, line_search_fn: str(strong_wolfe)? = None)",
	Bounds: []bound{nonNegative("lr"), {arg: "max_iter", ok: func(x float64) bool { return x >= 1 }, want: "at least 1"},
		{arg: "history_size", ok: func(x float64) bool { return x >= 1 }, want: "at least 1"}},
	Warm: func(args any) int64 {
		a := args.(*lbfgsArgs)
		n := a.iterations()
		return (a.HistorySize+n)/n + 1 // the first iteration of all adds nothing
	},
	Note: func(args any) string {
		a := args.(*lbfgsArgs)
		note := fmt.Sprintf("LBFGS: how many iterations a step takes depends on the numbers; %d are assumed, each of which adds to the history", a.iterations())
		if cut := a.cut().iterations(); cut < a.iterations() {
			note += fmt.Sprintf("; %d are played, since from then on all are equal", cut)
		}
		return note
	},
})

// evaluations is the number of calls of the closure after which iterations end.
func (a *lbfgsArgs) evaluations() int64 {
	if a.MaxEval != nil {
		return *a.MaxEval
	}
	if a.MaxIter > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return a.MaxIter * 5 / 4
}

// iterations is how many a step takes: the closure is called once before them
// and once in each.
func (a *lbfgsArgs) iterations() int64 { return max(min(a.MaxIter, a.evaluations()-1), 1) }

// alikeIterations is how many iterations of a step are played beyond those that
// fill the history.
const alikeIterations = 100

// cut are the arguments with as many iterations as there are before all are equal:
// the history is full, and each takes what the one before has given back.
func (a *lbfgsArgs) cut() *lbfgsArgs {
	most := a.HistorySize + alikeIterations
	if most < a.HistorySize || a.iterations() <= most {
		return a
	}
	b := *a
	b.MaxIter = most
	if b.MaxEval != nil {
		b.MaxEval = &most
	}
	return &b
}

// lbfgsState is what LBFGS keeps beside the gradients, for all parameters.
type lbfgsState struct {
	iterations       int64
	d, t             *op.Tensor // t: nil for a number
	hDiag, prevGrad  *op.Tensor
	dirs, steps, ros []*op.Tensor
	al               []*op.Tensor

	numbers lbfgsNumbers
}

// held lists the tensors of the state.
func (s *lbfgsState) held() []*op.Tensor {
	var out []*op.Tensor
	for _, list := range [][]*op.Tensor{{s.d, s.t, s.hDiag, s.prevGrad}, s.dirs, s.steps, s.ros, s.al} {
		for _, t := range list {
			if t != nil {
				out = append(out, t)
			}
		}
	}
	return out
}

func lbfgsStep(c *Call, g Group) {
	a := c.Args.(*lbfgsArgs)
	if len(g.Params) == 0 {
		return
	}
	if c.Values() == nil {
		a = a.cut()
	}
	first := g.Params[0]
	s, _ := first.Own.(*lbfgsState)
	if s == nil {
		s = &lbfgsState{}
		first.Own = s
	}
	flat, met, d, t, hDiag := c.local(), c.local(), c.local(), c.local(), c.local()
	y, step := c.local(), c.local()
	ys, q, r, be, gtd, start := c.local(), c.local(), c.local(), c.local(), c.local(), c.local()
	origLoss := c.Evaluate()
	flat.set(c.flatGradient(g.Params))
	met.set(c.compared(c.largest(flat.one())))
	x := &s.numbers
	x.begin(c.Values(), a, g.Params, origLoss)
	if x.converged() {
		c.end()
		c.Drop(origLoss)
		return
	}
	d.share(s.d)
	t.share(s.t)
	hDiag.share(s.hDiag)
	evaluations := int64(1)
	for n := int64(1); ; n++ {
		s.iterations++
		if s.iterations == 1 {
			d.set(c.like(flat.one()))
		} else {
			c.direction(s, a, flat, d, hDiag, y, step, ys, q, r, be)
		}
		x.direction(s.iterations == 1)
		if s.prevGrad == nil {
			s.prevGrad = c.Persist(c.like(flat.one()))
		}
		if s.iterations == 1 { // min(1.0, 1.0 / flat_grad.abs().sum()) * lr
			abs := c.like(flat.one())
			sum := c.Do(aten.Sum, &aten.ReduceArgs{}, abs)[0]
			c.Drop(abs)
			inverse := c.quotientOf(sum.DType)
			c.Drop(sum)
			c.Drop(c.scalarOf(tensor.Bool))
			if x.whole() { // the number 1.0
				c.Drop(inverse)
				t.clear()
			} else {
				size := c.like(inverse)
				c.Drop(inverse)
				t.set(size)
			}
		} else {
			t.clear()
		}
		gtd.set(c.dot(flat.one()))
		c.Drop(c.scalarOf(tensor.Bool))
		if x.flat() {
			break
		}
		switch {
		case a.LineSearch != nil:
			start.set(each(g.Params, c.temp)...)
			evaluations += c.lineSearch(x, g.Params, flat, d.one(), t.one())
			met.set(c.compared(c.largest(flat.one())))
		case n != a.MaxIter:
			x.move(x.t)
			x.evaluated(c.evaluated(g.Params, flat))
			met.set(c.compared(c.largest(flat.one())))
			evaluations++
		default:
			x.move(x.t)
		}
		if n == a.MaxIter || evaluations >= a.evaluations() || x.converged() {
			break
		}
		step := c.like(d.one())
		abs := c.like(step)
		c.Drop(step)
		c.Drop(c.compared(c.reduced(abs)))
		if x.stuck() {
			break
		}
	}
	s.keep(c, d, t, hDiag)
	first.State = s.held()
	c.end()
	c.Drop(origLoss)
}

// direction updates the history and computes the next direction.
func (c *Call) direction(s *lbfgsState, a *lbfgsArgs, flat, d, hDiag, yLocal, stepLocal, ys, q, r, be *local) {
	y, step := c.like(flat.one()), c.like(d.one())
	yLocal.set(y)
	stepLocal.set(step)
	ys.set(c.dot(y))
	c.Drop(c.scalarOf(tensor.Bool))
	if s.numbers.curved() {
		c.remember(s, a, y, step, hDiag)
	}
	q.set(c.like(y))
	for len(s.al) < len(s.dirs) { // of history_size items in PyTorch, None at first
		s.al = append(s.al, nil)
	}
	for i := len(s.dirs) - 1; i >= 0; i-- {
		old := s.al[i]
		s.al[i] = c.Persist(c.scaledDot(y))
		c.Drop(old)
		c.Drop(c.like(s.al[i]))
	}
	next := c.like(y)
	d.set(next)
	r.set(c.Keep(next))
	for range s.dirs {
		be.set(c.scaledDot(y))
		c.Drop(c.like(be.one()))
	}
}

// remember adds a difference of gradients and a step to the history.
func (c *Call) remember(s *lbfgsState, a *lbfgsArgs, y, step *op.Tensor, hDiag *local) {
	if int64(len(s.dirs)) == a.HistorySize {
		for _, list := range []*[]*op.Tensor{&s.dirs, &s.steps, &s.ros} {
			oldest := (*list)[0]
			*list = (*list)[1:]
			c.Drop(oldest)
		}
	}
	s.dirs, s.steps = append(s.dirs, c.Persist(c.Keep(y))), append(s.steps, c.Persist(c.Keep(step)))
	s.ros = append(s.ros, c.Persist(c.quotientOf(y.DType)))
	square := c.dot(y)
	diagonal := c.like(square)
	c.Drop(square)
	hDiag.set(diagonal)
}

// evaluated calls the closure, whose gradients are the new flat one, and returns
// the value of the loss.
func (c *Call) evaluated(ps []*Param, flat *local) float64 {
	loss := c.Evaluate()
	v := c.value(loss)
	c.Drop(loss)
	flat.set(c.flatGradient(ps))
	return v
}

// value is that of a scalar; 0 where nothing is computed.
func (c *Call) value(t *op.Tensor) float64 {
	n := c.Values()
	if n == nil || t == nil {
		return 0
	}
	return n.Read(t)[0]
}

// lineSearch is _strong_wolfe whose first point is accepted, unless numbers say
// that the search goes on. d is the direction, t the step size; nil for a number.
// It returns how often it called the closure.
func (c *Call) lineSearch(x *lbfgsNumbers, ps []*Param, flat *local, d, t *op.Tensor) int64 {
	norm := c.largest(d)
	gradient := c.like(flat.one())
	x.move(x.t)
	loss := c.Evaluate()
	v := c.value(loss)
	c.Drop(loss)
	next := c.flatGradient(ps)
	slope := c.dot(next)
	var bound *op.Tensor // f + c1 * t * gtd
	for range 2 {
		b := c.like(slope)
		c.Drop(bound)
		bound = b
	}
	if t != nil {
		b := c.like(slope)
		c.Drop(bound)
		bound = b
	}
	c.Drop(c.compared(bound))
	size, limit := c.like(slope), c.like(slope)
	flag := c.scalarOf(tensor.Bool)
	c.Drop(size, limit, flag)
	evaluations := x.search(v, func() float64 {
		loss := c.Evaluate()
		v := c.value(loss)
		c.Drop(loss)
		old := next
		next = c.flatGradient(ps)
		c.Drop(old)
		return v
	})
	c.Drop(norm, slope, gradient)
	flat.set(next)
	return evaluations
}

// keep binds the state to what the step ends with.
func (s *lbfgsState) keep(c *Call, d, t, hDiag *local) {
	for _, x := range []struct {
		to   **op.Tensor
		from *local
	}{{&s.d, d}, {&s.t, t}, {&s.hDiag, hDiag}} {
		old := *x.to
		*x.to = x.from.one()
		if *x.to != nil {
			c.Persist(c.Keep(*x.to))
		}
		c.Drop(old)
	}
	for _, v := range []*local{d, t, hDiag} { // the state holds them
		v.clear()
	}
}

// flatGradient is _gather_flat_grad: the gradients as one vector, with zeros for
// parameters that have none.
func (c *Call) flatGradient(ps []*Param) *op.Tensor {
	var views, made []*op.Tensor
	for _, p := range ps {
		g := p.Grad
		if g == nil {
			g = c.New(tensor.Contiguous(tensor.D(p.T.Numel())), p.T.DType)
			made = append(made, g)
		}
		views = append(views, c.Do(aten.View, &aten.ShapeArgs{Shape: []int64{-1}}, g)[0])
	}
	flat := c.Do(aten.Cat, &aten.DimArgs{}, views...)[0]
	c.dropList(views)
	c.dropList(made)
	return flat
}

// largest is t.abs().max().
func (c *Call) largest(t *op.Tensor) *op.Tensor { return c.reduced(c.like(t)) }

// reduced is t.max() of a temporary.
func (c *Call) reduced(t *op.Tensor) *op.Tensor {
	most := c.Do(aten.Max.All, nil, t)[0]
	c.Drop(t)
	return most
}

// compared is the result of a comparison with a temporary.
func (c *Call) compared(t *op.Tensor) *op.Tensor {
	flag := c.scalarOf(tensor.Bool)
	c.Drop(t)
	return flag
}

// dot is a scalar product of vectors of t's type, by cuBLAS.
func (c *Call) dot(t *op.Tensor) *op.Tensor {
	out := c.scalarOf(t.DType)
	c.BlasHandle()
	return out
}

// scaledDot is x.dot(y) * number.
func (c *Call) scaledDot(t *op.Tensor) *op.Tensor {
	dot := c.dot(t)
	out := c.like(dot)
	c.Drop(dot)
	return out
}
