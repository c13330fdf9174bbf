package distributed

import (
	"math"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// world is the number of ranks that have the parts which are gathered.
func (g *shardGroup) world() int64 {
	if g.regrouped {
		return g.reshard
	}
	return g.ranks
}

// gathers is the type in which parameters are gathered and computed with.
func (g *shardGroup) gathers() tensor.DType {
	if g.ParamDType != nil {
		return *g.ParamDType
	}
	return g.dtype
}

// unshard starts an all-gather (foreach_all_gather): the parts are copied to this
// rank's place in the buffer of all. Where parameters are gathered in another type
// the parts are first converted, into one buffer; those on the CPU are copied to
// the device one by one.
func (g *shardGroup) unshard(p *python.Interp) {
	if g.result != nil || g.own || g.unsharded {
		return
	}
	if g.ranks == 1 && p.Env().Torch.Has(torchver.OneRankGathersNothing) {
		g.own = true
		return
	}
	p.Labelled("FSDP::all_gather", g.module.Layer, func() {
		p.OnStream(g.gathering, func() {
			d, world := g.gathers(), g.world()
			var n int64
			var inputs []*op.Tensor
			for _, x := range g.params {
				n += x.numel(world)
				if g.Offload && !g.regrouped {
					t := p.Transfer(x.cell.T, false, false, x.cell.T.LikeDense())
					if d != g.dtype {
						c := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: d}, t)
						p.Drop(t)
						t = c
					}
					inputs = append(inputs, t)
				}
			}
			if d != g.dtype && !g.Offload {
				inputs = append(inputs, p.New(tensor.Contiguous(tensor.D(n)), d))
			}
			g.result = p.New(tensor.Contiguous(tensor.D(n*world)), d)
			for i := len(inputs) - 1; i >= 0; i-- {
				p.Drop(inputs[i])
			}
		})
	})
}

// numel is the number of elements of a part where so many ranks have one.
func (x *shardParam) numel(world int64) int64 {
	if x.after != nil {
		return x.after.Numel()
	}
	return x.part
}

// waitForUnshard copies what was gathered to the parameters
// (foreach_all_gather_copy_out). In the forward pass the buffer lives on until
// the next group's parameters were copied, otherwise it is freed.
func (g *shardGroup) waitForUnshard(p *python.Interp) {
	if g.own {
		g.copyOwn(p)
		return
	}
	if g.result == nil {
		return
	}
	var before *op.Tensor // a local name until the end
	if g.phase == shardForward {
		before, g.gathered = g.gathered, nil
	}
	p.Labelled("FSDP::all_gather_copy_out", g.module.Layer, func() {
		world, d := g.world(), g.gathers()
		sizes := make([]int64, len(g.params))
		for i, x := range g.params {
			n := x.numel(world)
			sizes[i] = n * d.Size()
			x.allocate(p, n*world, d)
		}
		p.Layer = g.module.Layer
		onDevice(p, splitCopyTable(sizes, world, p.Env().SMs, p.Env().ThreadsPerSM))
		g.toUnsharded(p)
	})
	if g.phase == shardForward {
		g.gathered = g.result
	} else {
		p.Drop(g.result)
	}
	g.result = nil
	p.Drop(before)
}

// allocate makes the memory of an all-gather's output, or gives it back what
// EmptyStorage took.
func (x *shardParam) allocate(p *python.Interp, n int64, d tensor.DType) {
	p.Layer = x.cell.Layer
	if x.output == nil {
		x.output = p.New(tensor.Contiguous(tensor.D(n)), d)
	} else {
		p.FillStorage(x.output, tensor.Bytes(n*d.Size()))
	}
	p.Mark(x.output, trace.Parameters)
}

// toUnsharded makes the parameters of what was gathered.
func (g *shardGroup) toUnsharded(p *python.Interp) {
	for _, x := range g.params {
		if x.whole == nil {
			x.whole = p.Alias(x.output, tensor.Contiguous(x.size), g.gathers())
			o := autograd.Of(x.whole)
			o.Requires, o.Param, o.Inference = !x.cell.Frozen, true, g.inference
			o.Wrapped = x.gradient != python.GradTensor
		}
		x.cell.Whole = x.whole
		p.Drop(x.after)
		x.after = nil
	}
	g.unsharded, g.regrouped = true, false
}

// copyOwn is waitForUnshard of the only rank: each parameter is copied by itself. What
// was converted or moved for it lives until the next one was.
func (g *shardGroup) copyOwn(p *python.Interp) {
	g.own = false
	d := g.gathers()
	var input *op.Tensor
	for _, x := range g.params {
		p.Layer = x.cell.Layer
		before := input
		input = nil
		if g.Offload {
			input = p.Transfer(x.cell.T, false, false, x.cell.T.LikeDense())
		}
		if d != g.dtype {
			from := x.cell.T
			if input != nil {
				from = input
			}
			c := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: d}, from)
			p.Drop(input)
			input = c
		}
		p.Drop(before)
		x.allocate(p, x.part, d)
	}
	p.Layer = g.module.Layer
	g.toUnsharded(p)
	p.Drop(input)
}

// freeAfterForward is FSDPParamGroup.reshard after the forward pass. Where fewer
// ranks are to have the parameters until the backward pass, each keeps a copy of
// its part.
func (g *shardGroup) freeAfterForward(p *python.Interp) {
	switch {
	case g.reshard == 0:
		return
	case g.reshard == g.ranks:
		g.free(p)
		return
	}
	for _, x := range g.params {
		p.Layer = x.cell.Layer
		x.after = p.New(tensor.Contiguous(tensor.D(x.output.Numel()/g.reshard)), x.output.DType)
		p.Mark(x.after, trace.Parameters)
		p.EmptyStorage(x.output)
		x.cell.Whole = nil
	}
	p.Layer = g.module.Layer
	g.unsharded, g.regrouped = false, true
}

// free gives up the gathered parameters' memory (FSDPParam.to_sharded).
func (g *shardGroup) free(p *python.Interp) {
	if !g.unsharded && !g.regrouped {
		return
	}
	for _, x := range g.params {
		x.cell.Whole = nil
		p.EmptyStorage(x.output)
	}
	g.unsharded, g.regrouped = false, false
}

// onDevice is a table that a kernel reads, which is packed on the host and copied.
func onDevice(p *python.Interp, elements int64) {
	p.Drop(p.New(tensor.Contiguous(tensor.D(elements)), tensor.Int64))
}

// The kernels of split_with_sizes_copy and _chunk_cat work in blocks of so many
// bytes (BLOCK_SIZE and BYTES_PER_THREAD in
// aten/src/ATen/native/cuda/TensorShape.cu).
const (
	copyThreads = 128
	copyBytes   = 16 * copyThreads
)

// splitCopyTable is the number of elements of the table of
// split_with_sizes_copy.out: three for each split, one for each block and the
// sums of blocks. A block takes more where there are more than the device runs at
// once; sizes are the bytes of each split of a chunk.
func splitCopyTable(sizes []int64, chunks int64, sms, threadsPerSM int) int64 {
	var blocks int64
	for _, n := range sizes {
		blocks += tensor.DivUp(n, copyBytes)
	}
	most := max(int64(sms)*int64(threadsPerSM)/copyThreads*2, 1)
	factor := tensor.DivUp(blocks*chunks, most)
	perBlock := min(int64(math.Ceil(math.Sqrt(float64(factor)))), chunks)
	iterations := tensor.DivUp(factor, perBlock)
	total := 4*int64(len(sizes)) + 1
	for _, n := range sizes {
		total += tensor.DivUp(n, copyBytes*iterations)
	}
	return total
}

// chunkCatTable is the number of elements of the table of _chunk_cat.out: six for
// each tensor, one for each block of a chunk, and two more; sizes are the bytes of
// each tensor's part of a chunk.
func chunkCatTable(sizes []int64) int64 {
	total := 6*int64(len(sizes)) + 2
	for _, n := range sizes {
		total += tensor.DivUp(n, copyBytes)
	}
	return total
}
