package op

import "github.com/memplan/memplan/internal/array"

// statistic is a reduction of groups x of elements to one number, y; slopes gives the
// derivatives by each of them, over the dimensions that are reduced, none meaning all.
// Without slopes there is no derivative.
type statistic struct {
	of     func(x []float64, args any) float64
	slopes func(x []float64, y float64, args any) []float64
	over   func(args any) []int64
}

func (s statistic) eval() *Eval {
	with := func(args any) func(x []float64) float64 {
		return func(x []float64) float64 { return s.of(x, args) }
	}
	var backward func(a Arrays, b *Back)
	if s.slopes != nil {
		backward = func(a Arrays, b *Back) {
			if r := a.Wanted(b, 0); r != nil {
				slopes := func(x []float64, y float64) []float64 { return s.slopes(x, y, b.Args) }
				a.Put(r, a.Array(b.SavedIn(0)).ReduceGrad(a.Get(b.Grads[0]), s.over(b.Args), with(b.Args), slopes))
			}
		}
	}
	return aside(func(a Arrays, c *Call) {
		a.Put(c.Out[0], a.Array(c.In[0]).Reduce(s.over(c.Args), with(c.Args)))
	}, backward)
}

func overAll(any) []int64 { return nil }

func overDims(args any) []int64 { return args.(*ReduceArgs).Dim }

// alike are the derivatives of an extreme, which all elements that equal it share.
func alike(x []float64, y float64, _ any) []float64 { return array.SharedBy(x, y) }
