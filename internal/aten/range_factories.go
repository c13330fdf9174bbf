package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// ArangeArgs are the bounds of arange: Start alone is where it ends.
type ArangeArgs struct {
	Start op.Number     `arg:"start"`
	End   op.Number     `arg:"end"`
	Step  op.Number     `arg:"step"`
	DType *tensor.DType `arg:"dtype"`
}

// Range is where arange starts, its step, and how many elements it has; less than
// 0, or no number, where it has no end.
func (a *ArangeArgs) Range() (start, step, n float64) {
	start, step = a.Start.Value, 1
	end := a.End.Value
	if !a.End.Set {
		start, end = 0, start
	}
	if a.Step.Set {
		step = a.Step.Value
	}
	return start, step, math.Ceil((end - start) / step)
}

// Arange counts from start to end, in int64 unless a type is given or a bound is
// a floating-point number.
var Arange = define(op.Op{
	Name: "arange", Eval: evalArange, Sig: "torch.arange(start: number? = None, end: number? = None, step: number? = None, *, dtype: dtype? = None)", Args: &ArangeArgs{},
	Run: func(c *op.Call) {
		a := c.Args.(*ArangeArgs)
		d := tensor.Int64
		switch {
		case a.DType != nil:
			d = *a.DType
		case a.Start.Float || a.End.Float || a.Step.Float:
			d = tensor.Float32
		}
		start, step, n := a.Range()
		switch {
		case !a.Start.Set && !a.End.Set:
			c.Fail("arange needs end")
		case a.Step.Set && (!a.Start.Set || !a.End.Set):
			c.Fail("arange with step needs start and end")
		case !(n >= 0 && n <= op.MaxSize):
			c.Fail("end is not reached from start %v by steps of %v", start, step)
		}
		c.Return(c.Grown(d, int64(n)))
	},
	Below: func(c *op.Call) (int64, bool) {
		start, step, n := c.Args.(*ArangeArgs).Range()
		return int64(max(start, start+(n-1)*step)) + 1, n > 0 && !c.Out[0].DType.IsFloating()
	},
	Source: "aten/src/ATen/native/cuda/RangeFactories.cu: arange_cuda_out",
})

// Linspace is so many numbers from start to end.
var Linspace = define(op.Op{
	Name: "linspace", Sig: "torch.linspace(start: float, end: float, steps: int, *, dtype: dtype? = None)", Args: &LinspaceArgs{}, Run: func(c *op.Call) {
		a := c.Args.(*LinspaceArgs)
		filledOf(c, &FillArgs{Size: []int64{a.Steps}, DType: a.DType}, tensor.Float32)
	},
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		l := c.Args.(*LinspaceArgs)
		a.Put(c.Out[0], array.Linspace(l.Start, l.End, int(l.Steps)))
	}, nil),
})

// LinspaceArgs are the arguments of linspace.
type LinspaceArgs struct {
	Start float64       `arg:"start"`
	End   float64       `arg:"end"`
	Steps int64         `arg:"steps"`
	DType *tensor.DType `arg:"dtype"`
}

var evalArange = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	start, step, _ := c.Args.(*ArangeArgs).Range()
	return m.Launch(kernel.Arange, []kernel.Tensor{op.As(m, c.Out[0])}, nil, start, step)
}}
