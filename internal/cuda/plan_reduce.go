package cuda

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

var reducePlans = map[*kernel.Kernel]planner{
	kernel.Sum: reduction("sum", true), kernel.Max: reduction("max", true), kernel.Min: reduction("min", true), kernel.Norm: reduction("sum", false),
	kernel.MSE: reduction("sum", false), kernel.L1: reduction("sum", false), kernel.BCE: reduction("sum", false),
	kernel.Entropy: reduction("sum", false),
}

func init() { anyType[kernel.Sum], anyType[kernel.Max], anyType[kernel.Min] = true, true, true }

// reduction is one that combines as the functions of that name do. Where results
// are few, each is computed in parts that meet in scratch.
func reduction(name string, integers bool) planner {
	return func(c *kernel.Call) ([]launch, error) {
		y, a, b := &c.T[0], &c.T[1], &kernel.Tensor{}
		if len(c.T) > 2 {
			b = &c.T[2]
		}
		function, scratch := name+"_float", tuning.scratch
		switch ints := !a.DType.IsFloating(); {
		case ints && !integers, y.DType == tensor.Float64, a.DType == tensor.Float64:
			return nil, unsupported(c, fmt.Sprintf("is not computed of %v", a.DType))
		case ints:
			function, scratch = name+"_int", tuning.scratchI
		}
		kept, reduced := newShape(3), newShape(2)
		for d := range y.Size.Len() {
			if n := y.Size.At(d); n != 1 && y.Stride.At(d) == 0 {
				reduced.add(n, strides(d, a, b)...)
			} else {
				kept.add(n, strides(d, y, a, b)...)
			}
		}
		results, terms, scale := numel(kept.size), numel(reduced.size), 1.0
		if len(c.F) > 0 {
			scale = c.F[0]
		}
		way, blocks, least := "_rows", results, tuning.part
		if inner(kept, 1) == 1 && inner(reduced, 0) != 1 && results >= 16 {
			way, blocks, least = "_columns", tensor.DivUp(results, 32), tuning.partOf
		}
		n, length := parts(terms, blocks, least, results, scratch)
		first := args{}.ints(int64(c.Kernel.Index())).doubles(scale).ints(n, length).sizes(kept.size).sizes(reduced.size).
			tensors(kept, y, a, b).tensors(reduced, a, b)
		ls := []launch{{function + way, blocks, n, first}}
		if n > 1 {
			ls = append(ls, launch{function + "_combine", results, 1, args{}.ints(int64(c.Kernel.Index())).doubles(scale).ints(n).sizes(kept.size).tensor(y, kept.stride[0]...)})
		}
		return ls, nil
	}
}

// inner is the stride of an operand along the innermost dimension; 0 if there is
// none.
func inner(s shape, i int) int64 {
	if len(s.size) == 0 {
		return 0
	}
	return s.stride[i][len(s.size)-1]
}
