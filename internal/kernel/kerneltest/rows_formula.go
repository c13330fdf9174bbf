package kerneltest

import (
	"math"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
)

// formulaNumbers are the values from which the numbers of formulas are drawn;
// those that are not listed are 0.1 or 0.9.
var formulaNumbers = map[string][]float64{
	"sign": {1, -1}, "decay": {0, 0.01}, "shrink": {1, 0.99}, "lr": {0.1, 1e-3}, "eps": {1e-3}, "adaptive": {0, 0.1},
	"reuse": {0, 1}, "less": {0.5}, "more": {1.2}, "least": {0.2}, "most": {2}, "beta1": {0.9}, "beta2": {0.9, 0.99},
}

// formulaStates are the distributions of states that may be negative; others are
// what a square root is taken of, or a size.
var formulaStates = map[string]distribution{"p": normal, "m": normal, "buf": normal, "before": normal, "ax": normal, "g": normal,
	"mean": func(r rng) float64 { return 0.1 * normal(r) }}

func drawFormula(g *generator) {
	size := g.shape()
	for _, n := range g.k.Floats {
		v := formulaNumbers[n]
		if v == nil {
			v = []float64{0.1, 0.9}
		}
		g.f[n] = among(v...)(g.rng)
	}
	for i, n := range names(g.k) {
		draw := formulaStates[n]
		switch {
		case strings.HasSuffix(g.k.Tensors[i], "?") && g.chance(2):
			continue
		case i >= g.k.Outputs:
			g.in(n, normal, size...)
			continue
		case draw == nil:
			draw = positive
		}
		g.state(n, g.d, draw, size...)
	}
}

func expectFormula(c *calculation) {
	for n := range c.t[names(c.k)[0]].v {
		values, largest := map[string]float64{}, 0.0
		note := func(v float64) float64 {
			if a := math.Abs(v); a > largest && !math.IsInf(a, 0) {
				largest = a
			}
			return v
		}
		for name, t := range c.t {
			if t != nil {
				values[name] = note(t.v[n])
			}
		}
		for name, v := range c.f {
			values[name] = v
		}
		for _, a := range c.k.Formula {
			_, there := values[a.When]
			if number, is := c.f[a.When]; a.When == "" || there && !is || number != 0 {
				values[a.To] = note(evaluate(a.Value, values))
			}
		}
		for _, name := range names(c.k)[:c.k.Outputs] {
			if t := c.t[name]; t != nil {
				t.v[n], t.scale[n] = values[name], largest
			}
		}
	}
}

func evaluate(t *kernel.Term, values map[string]float64) float64 {
	if t.Op == "" {
		if t.Name != "" {
			return values[t.Name]
		}
		return t.Number
	}
	var x []float64
	for _, a := range t.Args {
		x = append(x, evaluate(a, values))
	}
	switch t.Op {
	case "+":
		return x[0] + x[1]
	case "-":
		return x[0] - x[1]
	case "*":
		return x[0] * x[1]
	case "/":
		return x[0] / x[1]
	case "sqrt":
		return math.Sqrt(x[0])
	case "abs":
		return math.Abs(x[0])
	case "tanh":
		return math.Tanh(x[0])
	case "sigmoid":
		return 1 / (1 + math.Exp(-x[0]))
	case "max":
		return math.Max(x[0], x[1])
	case "min":
		return math.Min(x[0], x[1])
	}
	three := []float64{0, 1, -1} // sign
	if t.Op == "choose" {
		three = []float64{x[3], x[1], x[2]}
	}
	switch {
	case x[0] > 0:
		return three[1]
	case x[0] < 0:
		return three[2]
	}
	return three[0]
}
