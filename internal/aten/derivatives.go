package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
)

// parseFormula reads a formula of tools/autograd/derivatives.yaml.
func parseFormula(text string) *op.Formula { return op.ParseFormula(text, vocabulary) }

// vocabulary is what its formulas are made of.
var vocabulary = &op.Vocabulary{
	Product: MulTensor, Multiple: MulScalar,
	Constants: map[string]float64{"M_PI": math.Pi, "M_LN2": math.Ln2},
	Functions: map[string]op.Word{
		"pow":        {Of: func(x ...float64) float64 { return math.Pow(x[0], x[1]) }},
		"sqrt":       {Of: func(x ...float64) float64 { return math.Sqrt(x[0]) }},
		"rsqrt":      {Of: func(x ...float64) float64 { return 1 / math.Sqrt(x[0]) }},
		"reciprocal": {Of: func(x ...float64) float64 { return 1 / x[0] }},
		"sin":        {Of: func(x ...float64) float64 { return math.Sin(x[0]) }},
		"cos":        {Of: func(x ...float64) float64 { return math.Cos(x[0]) }},
		"sgn":        {Of: func(x ...float64) float64 { return array.Sign(x[0]) }},
		"exp":        {Of: func(x ...float64) float64 { return math.Exp(x[0]) }},
		"sinh":       {Of: func(x ...float64) float64 { return math.Sinh(x[0]) }},
		"cosh":       {Of: func(x ...float64) float64 { return math.Cosh(x[0]) }},
		"erfinv":     {Of: func(x ...float64) float64 { return math.Erfinv(x[0]) }},
		"digamma":    {Of: func(x ...float64) float64 { return digamma(x[0]) }},
		"polygamma":  {Of: func(x ...float64) float64 { return trigamma(x[1]) }}, // of order 1
		"isfinite":   {Of: func(x ...float64) float64 { return array.Truth(isFiniteNumber(x[0])) }, Op: IsFinite},
		"div_trunc":  {Of: func(x ...float64) float64 { return math.Trunc(x[0] / x[1]) }},
		"div_floor":  {Of: func(x ...float64) float64 { return math.Floor(x[0] / x[1]) }},
	},
}
