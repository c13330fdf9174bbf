package op

import "github.com/memplan/memplan/internal/array"

// Statistic is a reduction of groups x of elements to one number, y; slopes gives the
// derivatives by each of them, over the dimensions that are reduced, none meaning all.
// Without slopes there is no derivative.
type Statistic struct {
	Of     func(x []float64, args any) float64
	Slopes func(x []float64, y float64, args any) []float64
	Over   func(args any) []int64
}

// Eval is the operator, computed with arrays.
func (s Statistic) Eval() *Eval {
	with := func(args any) func(x []float64) float64 {
		return func(x []float64) float64 { return s.Of(x, args) }
	}
	var backward func(a Arrays, b *Back)
	if s.Slopes != nil {
		backward = func(a Arrays, b *Back) {
			if r := a.Wanted(b, 0); r != nil {
				slopes := func(x []float64, y float64) []float64 { return s.Slopes(x, y, b.Args) }
				a.Put(r, a.Array(b.SavedIn(0)).ReduceGrad(a.Get(b.Grads[0]), s.Over(b.Args), with(b.Args), slopes))
			}
		}
	}
	return OnHost(func(a Arrays, c *Call) {
		a.Put(c.Out[0], a.Array(c.In[0]).Reduce(s.Over(c.Args), with(c.Args)))
	}, backward)
}

// OverAll reduces all dimensions, whatever the arguments are.
func OverAll(any) []int64 { return nil }

// SlopesOfExtreme are the derivatives of an extreme, which all elements that equal it share.
func SlopesOfExtreme(x []float64, y float64, _ any) []float64 { return array.SharedBy(x, y) }
