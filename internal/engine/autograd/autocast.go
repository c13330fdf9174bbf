package autograd

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Autocast converts the inputs of operators to the type that their row's
// policy asks for, before autograd sees them. Parameters that were converted
// to the lower type are kept until the outermost region ends, so that each is
// converted once (aten/src/ATen/autocast_mode.cpp: cached_cast).

// castCache holds the converted parameters in the order of their conversion.
type castCache struct {
	byLeaf map[*Object]*op.Tensor
	order  []*op.Tensor
	probed bool // whether bfloat16 works
}

// EnterAutocast begins a region of torch.autocast. On GPUs without bfloat16 the
// first one tries whether a tensor of one such number can be made
// (torch.cuda.is_bf16_supported).
func (p *Player) EnterAutocast(lower tensor.DType) {
	if lower == tensor.BFloat16 && p.env.Arch < 80 && !p.casts.probed {
		p.Drop(p.New(tensor.Contiguous(tensor.D(1)), lower))
		p.casts.probed = true
	}
	p.env.Autocast, p.env.AutocastDType = true, lower
	p.casts.byLeaf = map[*Object]*op.Tensor{}
}

// ExitAutocast ends the region and clears the cache. PyTorch frees in the order
// of a hash table, which differs from run to run; here it is the order of
// conversion.
func (p *Player) ExitAutocast() {
	p.env.Autocast = false
	p.ClearCasts()
}

// ClearCasts gives up the parameters that were converted.
func (p *Player) ClearCasts() {
	for _, t := range p.casts.order {
		p.Drop(t)
	}
	p.casts.byLeaf, p.casts.order = nil, nil
}

// doAutocast runs an operator under autocast. The converted inputs are dropped
// from the first on; operators that this one is made of see them only.
func (p *Player) doAutocast(r *op.Op, args any, in []*op.Tensor) []*op.Tensor {
	r.RefuseAutocast(p)
	outer := p.Push()
	p.env.Autocast = false
	to, cast := r.AutocastType(p.env.AutocastDType, in)
	args = r.AutocastArgs(args, in)
	ins := append([]*op.Tensor(nil), in...)
	guarded := cast && p.Recomputing > 0
	var g *guard
	if guarded {
		g = p.guard(nil)
	}
	if cast {
		for _, i := range r.CastOrder(len(in)) {
			ins[i] = p.cachedCast(to, in[i])
			if guarded && ins[i] != nil {
				g.own(ins[i])
			}
		}
	}
	outs := p.Do(r, args, ins...)
	if guarded {
		p.unguard()
	}
	if cast {
		p.Drop(ins...)
	}
	p.Pop(outer)
	return outs
}

// cachedCast returns t in another type, with a reference for the caller.
func (p *Player) cachedCast(to tensor.DType, t *op.Tensor) *op.Tensor {
	if t == nil {
		return nil
	}
	if !op.Autocasts(t) || t.DType == to {
		return p.Keep(t)
	}
	o := Of(t)
	cached := to == p.env.AutocastDType && t.DType == tensor.Float32 && o.Requires && o.fn == nil && o.base == nil
	always := p.env.Torch.Has(torchver.AutocastCachesWithGrad)
	cached = cached && !(always && p.env.Inference)
	if c := p.casts.byLeaf[o]; cached && c != nil {
		return p.Keep(c)
	}
	outer := p.Push()
	p.env.GradMode = p.env.GradMode || cached && always
	c := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: to}, t)
	p.Pop(outer)
	if cached {
		p.casts.byLeaf[o] = p.Keep(c)
		p.casts.order = append(p.casts.order, c)
	}
	return c
}
