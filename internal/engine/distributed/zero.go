package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// torch.distributed.optim.ZeroRedundancyOptimizer: each process steps some of the
// parameters and tells the others, in place, what came of it. Gradients are
// zeroed, clipped and unscaled of all parameters.

// Divide gives each parameter of an optimizer to a process: group by group, the
// largest first, to the process that has the fewest elements
// (_partition_parameters). It returns the members of each group for each process.
func Divide(groups [][]int, cells []*python.Cell, ranks int64) [][][]int {
	out := make([][][]int, ranks)
	sizes := make([]int64, ranks)
	for _, members := range groups {
		bySize := slices.Clone(members)
		slices.SortStableFunc(bySize, func(a, b int) int { return int(min(max(cells[b].T.Numel()-cells[a].T.Numel(), -1), 1)) })
		for r := range out {
			out[r] = append(out[r], nil)
		}
		for _, k := range bySize {
			r := slices.Index(sizes, slices.Min(sizes))
			own := &out[r][len(out[r])-1]
			*own = append(*own, k)
			sizes[r] += cells[k].T.Numel()
		}
	}
	return out
}

// ViewBuckets makes the parameters of each process views of one tensor, which the
// optimizer holds for good (_build_param_buckets). Where they are not contiguous, a copy
// that is goes in.
func ViewBuckets(p *python.Interp, cells []*python.Cell, parts [][][]int) {
	for _, groups := range parts {
		var own []int
		var n int64
		for _, members := range groups {
			own = append(own, members...)
		}
		for _, k := range own {
			n += cells[k].T.Numel()
		}
		d := tensor.Float32
		if n > 0 {
			d = cells[own[0]].T.DType
		}
		bucket := p.New(tensor.Contiguous(tensor.D(max(n, 1))), d)
		p.Mark(bucket, trace.Parameters)
		at := int64(0)
		for _, k := range own {
			t := cells[k].T
			if !t.IsContiguous() {
				p.Drop(p.New(tensor.Contiguous(t.Size), d))
			}
			l := tensor.Contiguous(t.Size)
			l.Offset = at
			p.MoveInto(t, bucket, l)
			at += t.Numel()
		}
	}
}
