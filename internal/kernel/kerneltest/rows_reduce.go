package kerneltest

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// sums is how many units in the last place a sum may be off, relative to the
// sum of the absolute values.
const sums = 100

// reduced is a row of a reduction: start is its value over nothing, step adds
// an element of each operand.
func reduced(start float64, step func(sum, a, b float64) (v, term float64), target distribution) row {
	return reducedOf(normal, start, step, target)
}

// reducedOf is the same of elements a that are drawn otherwise.
func reducedOf(input distribution, start float64, step func(sum, a, b float64) (v, term float64), target distribution) row {
	return row{
		draw: func(g *generator) {
			size := g.shape()
			for (g.k == kernel.Max || g.k == kernel.Min) && tensor.D(size...).Numel() == 0 {
				size = g.shape()
			}
			a := g.layout(g.d, size, false)
			over, kept := make([]bool, len(size)), append([]int64(nil), size...)
			all := g.chance(3)
			for i := range size {
				if over[i] = all || g.chance(2); over[i] {
					kept[i] = 1
				}
			}
			y := g.layout(g.d, kept, false)
			y.Size = a.Size
			for i := range size {
				if over[i] {
					y.Stride = y.Stride.Set(i, 0)
				}
			}
			g.arrays["y"] = y
			g.in("a", input, size...)
			if len(g.k.Tensors) > 2 {
				g.in("b", target, size...)
			}
			g.f["scale"] = among(1, 0.25, 1.0/3)(g.rng)
		},
		expect: func(c *calculation) {
			scale, ok := c.f["scale"]
			if !ok {
				scale = 1
			}
			y, a := c.t["y"], c.t["a"] // the reduced dimensions of y have one element
			for i := range y.v {
				y.v[i] = start
			}
			index := make([]int64, len(a.size))
			for n, v := range a.v {
				rest := int64(n)
				for d := len(index) - 1; d >= 0; d-- {
					index[d] = min(rest%a.size[d], y.size[d]-1)
					rest /= a.size[d]
				}
				b, at := 0.0, y.at(index...)
				if c.t["b"] != nil {
					b = c.t["b"].v[n]
				}
				sum, term := step(y.v[at], v, b)
				y.v[at] = sum
				y.scale[at] += term * scale
			}
			for i := range y.v {
				y.v[i] *= scale
			}
		},
		factor: sums,
	}
}

// norm is the root of a sum of squares.
func norm() row {
	r := reduced(0, func(s, a, _ float64) (float64, float64) { return s + a*a, 0 }, nil)
	squares := r.expect
	r.expect = func(c *calculation) {
		squares(c)
		for i, v := range c.t["y"].v {
			c.t["y"].v[i] = math.Sqrt(v)
		}
	}
	return r
}

var reduceRows = map[*kernel.Kernel]row{
	kernel.Sum:  reduced(0, func(s, a, _ float64) (float64, float64) { return s + a, math.Abs(a) }, nil),
	kernel.Max:  reduced(math.Inf(-1), func(s, a, _ float64) (float64, float64) { return math.Max(s, a), 0 }, nil),
	kernel.Min:  reduced(math.Inf(1), func(s, a, _ float64) (float64, float64) { return math.Min(s, a), 0 }, nil),
	kernel.Norm: norm(),
	kernel.MSE:  reduced(0, func(s, a, b float64) (float64, float64) { return s + (a-b)*(a-b), 2 * (a*a + b*b) }, normal),
	kernel.L1:   reduced(0, func(s, a, b float64) (float64, float64) { return s + math.Abs(a-b), math.Abs(a) + math.Abs(b) }, normal),
	kernel.BCE: reduced(0, func(s, a, b float64) (float64, float64) {
		return s + math.Max(a, 0) - a*b + math.Log1p(math.Exp(-math.Abs(a))), 1 + math.Abs(a)
	}, unit),
	kernel.Entropy: reducedOf(unit, 0, func(s, a, b float64) (float64, float64) {
		return s - b*math.Log(a) - (1-b)*math.Log(1-a), 1 + math.Abs(math.Log(a)) + math.Abs(math.Log(1-a))
	}, unit),
}

// drawGrouped draws parts of rows, of columns or of k, and their products.
func drawGrouped(g *generator) {
	s, groups := g.dims(3), 1+g.rng.Int64N(4)
	divided := g.rng.Int64N(3)
	limit, one := s[divided], [3]int64{1, 1, 1}
	offs := empty(groups)
	for i := range offs.v {
		offs.v[i] = float64(g.rng.Int64N(limit + 1))
	}
	slices.Sort(offs.v)
	offs.v[groups-1] = float64(limit)     // so that all is written
	one[[]int{2, 1, 0}[divided]] = groups // b, a or c
	g.i["divided"] = divided
	g.given("offs", tensor.Int32, offs)
	g.out("c", one[0], s[0], s[1])
	g.in("a", normal, one[1], s[0], s[2])
	g.in("b", normal, one[2], s[2], s[1])
}

func expectGrouped(c *calculation) {
	y, a, b, start := c.t["c"], c.t["a"], c.t["b"], int64(0)
	if c.i["divided"] == 2 {
		y.clear()
	}
	for g := range c.t["offs"].size[0] {
		from, to := [3]int64{}, [3]int64{y.size[1], y.size[2], a.size[2]}
		end := int64(c.t["offs"].get(g))
		from[c.i["divided"]], to[c.i["divided"]] = start, end
		start = end
		for m := from[0]; m < to[0]; m++ {
			for n := from[1]; n < to[1]; n++ {
				y.set(0, 0, min(g, y.size[0]-1), m, n)
				for k := from[2]; k < to[2]; k++ {
					v := a.get(min(g, a.size[0]-1), m, k) * b.get(min(g, b.size[0]-1), k, n)
					y.add(v, math.Abs(v), min(g, y.size[0]-1), m, n)
				}
			}
		}
	}
}

var gemmRows = map[*kernel.Kernel]row{
	kernel.GroupedGemm: {draw: drawGrouped, expect: expectGrouped, factor: sums},
	kernel.Gemm: {
		draw: func(g *generator) {
			n, m, k, p := g.dim(4), g.dim(90), g.dim(200), g.dim(90)
			if g.chance(3) {
				k = g.dim(1500)
			}
			if g.chance(30) {
				k = 0
			}
			g.out("c", n, m, p)
			g.in("a", normal, n, m, k)
			g.in("b", normal, n, k, p)
			if g.chance(2) {
				g.in("bias", normal, n, m, p)
			}
			g.f["alpha"], g.f["beta"] = among(1, 0.5)(g.rng), among(1, -2, 0)(g.rng)
		},
		expect: func(c *calculation) {
			y, a, b := c.t["c"], c.t["a"], c.t["b"]
			y.clear()
			for n := range y.size[0] {
				for i := range y.size[1] {
					for j := range y.size[2] {
						for k := range a.size[2] {
							v := c.f["alpha"] * a.get(n, i, k) * b.get(n, k, j)
							y.add(v, math.Abs(v), n, i, j)
						}
						if c.t["bias"] != nil {
							v := c.f["beta"] * c.t["bias"].get(n, i, j)
							y.add(v, math.Abs(v), n, i, j)
						}
					}
				}
			}
		},
		factor: sums,
	},
}
