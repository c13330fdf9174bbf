package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// arrived is the hook of a parameter whose gradient is ready
// (reduce_independent_p_g_buckets_and_remove_grads).
func (z *zero3) arrived(leaf *autograd.Object) {
	x := z.leaves[leaf]
	outer := z.p.Push()
	z.p.Label("DeepSpeedZeroOptimizer_Stage3")
	z.p.Env().GradMode = false
	n := x.numel()
	if z.elements+n > z.ReduceBucket && z.elements > 0 {
		z.reduceParts()
	}
	if z.buffer != nil && z.elements+n <= z.ReduceBucket {
		g := &leaf.Grad.Tensor
		g.DType = z.buffer.DType
		z.moveInto(g, z.buffer, z.elements)
	}
	z.bucket = append(z.bucket, x)
	z.elements += n
	z.p.Pop(outer)
}

// reduceParts is __reduce_and_partition_ipg_grads.
func (z *zero3) reduceParts() {
	if len(z.bucket) == 0 {
		return
	}
	z.onReduction(func() {
		var parts []*op.Tensor
		if z.buffer != nil && z.elements <= z.ReduceBucket && !z.ReduceScatter {
			parts = z.allReduced()
		} else {
			slices.SortFunc(z.bucket, func(a, b *divided) int { return int(a.id - b.id) })
			parts = z.scattered()
		}
		for _, x := range z.bucket {
			z.dropGradOf(x)
		}
		z.bucket, z.elements = z.bucket[:0], 0
		z.dropList(parts)
	})
}

// dropGradOf sets .grad to None.
func (z *zero3) dropGradOf(x *divided) {
	if g := x.leaf().Grad; g != nil {
		x.leaf().Grad = nil
		z.p.Release(g)
	}
}

// scattered is __avg_scatter_grads: what holds this process's parts of the gradients.
func (z *zero3) scattered() []*op.Tensor {
	p := z.p
	var grads, own []*op.Tensor
	for _, x := range z.bucket {
		g := &x.leaf().Grad.Tensor
		if c := z.convert(g, z.Comm); z.Comm != z.DType && c != nil {
			grads, own = append(grads, c), append(own, c)
		} else {
			grads = append(grads, g)
		}
	}
	flat := z.interleaved(grads)
	var parts []*op.Tensor
	for range grads {
		if z.Comm != z.Accum {
			continue
		}
		parts = append(parts, p.Keep(flat))
	}
	if z.Comm != z.Accum {
		for i, x := range z.bucket {
			parts = append(parts, z.vector(min(x.part, max(grads[i].Numel()-z.Rank*x.part, 0)), z.Accum))
		}
	}
	p.Drop(flat)
	z.dropList(own)
	return parts
}

// interleaved is what reduce_scatter_coalesced reduces: each process's parts one after the
// other, with padding; of one tensor that needs none itself.
func (z *zero3) interleaved(grads []*op.Tensor) *op.Tensor {
	p, d := z.p, grads[0].DType
	if len(grads) == 1 && grads[0].Numel()%z.ranks == 0 {
		if !grads[0].IsContiguous() {
			p.Fail("DeepSpeed views a gradient as one row, which PyTorch refuses: it is not contiguous")
		}
		return p.Alias(grads[0], tensor.Contiguous(tensor.D(grads[0].Numel())), d)
	}
	var pads []*op.Tensor
	var all int64
	for r := range z.ranks {
		for _, g := range grads {
			if !g.IsContiguous() {
				p.Fail("DeepSpeed views a gradient as one row, which PyTorch refuses: it is not contiguous")
			}
			part := tensor.DivUp(g.Numel(), z.ranks)
			has := min(part, max(g.Numel()-r*part, 0))
			if part > has {
				pads = append(pads, z.vector(part-has, d))
			}
			all += part
		}
	}
	flat := z.vector(all, d)
	z.dropList(pads)
	return flat
}

// allReduced is __avg_scatter_contiguous_grads: the bucket is reduced as it is.
func (z *zero3) allReduced() []*op.Tensor {
	p := z.p
	l := tensor.Contiguous(tensor.D(z.elements))
	t := p.Alias(z.buffer, l, z.buffer.DType)
	if z.ranks > 1 {
		p.Drop(t)
		t = z.vector(z.elements, z.Comm) // mul
	}
	if c := z.convert(t, z.Accum); c != nil {
		p.Drop(t)
		t = c
	}
	var parts []*op.Tensor
	for _, x := range z.bucket {
		n := x.numel()
		if has := min(n, z.Rank*x.part+x.part) - min(n, z.Rank*x.part); has != x.part {
			parts = append(parts, z.vector(x.part, z.Accum))
		} else {
			parts = append(parts, p.Keep(t))
		}
	}
	p.Drop(t)
	return parts
}
