package distributed

import (
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Megatron is Megatron-core's DistributedDataParallel around a model and the optimizer of its
// parameters, on the first of the data-parallel processes, as release 0.15 has them. Gradients
// are added to a buffer as they become ready (megatron/core/distributed/param_and_grad_buffer.py),
// and the optimizer steps parameters in float32 by views of it (Float16OptimizerWithFloat16Params
// and FP32Optimizer in megatron/core/optimizer/optimizer.py). With the distributed optimizer the
// parameters are views of a buffer, too, and a process steps its part of each bucket
// (megatron/core/optimizer/distrib_optimizer.py).
type Megatron struct {
	p *python.Interp
	*program.Megatron
	params  []*megatronParam // in the order of Module.parameters
	index   map[*autograd.Object]*megatronParam
	parts   []*megatronPart
	wrapped []*megatronWrapped // the model chunks
	shared  int64              // elements of gradients that tensor-parallel processes add up

	scalars []*op.Tensor
}

// megatronPart is the parameters that the same processes have, with buffers and an optimizer
// of their own: those of experts that are spread over GPUs, and all others.
type megatronPart struct {
	ranks  int64 // data-parallel processes
	groups []MegatronGroup
	order  []*megatronParam // in the order of the groups
}

// MegatronGroup is a group of parameters of one of Megatron's optimizers.
type MegatronGroup struct {
	Of      int   // the group of the job's optimizer that it is a part of
	Members []int // parameters, in the optimizer's order
}

// megatronWrapped is a model chunk with DistributedDataParallel around it.
type megatronWrapped struct {
	buffers []*megatronBuffer // of each part that has parameters in it
	passes  int64             // backward passes since the last step
}

// megatronBuffer is where the parameters and gradients lie that a model chunk has of a part
// (_ParamAndGradBuffer).
type megatronBuffer struct {
	of      *megatronPart
	params  []*megatronParam // in the order of Module.parameters
	bucket  int64            // the least elements of a bucket; 0: there is one
	numel   int64
	grads   *op.Tensor // grad_data
	buckets []*megatronBucket
}

// megatronBucket is a part of the buffer that is reduced by itself.
type megatronBucket struct {
	size   int64
	grads  *op.Tensor
	params int // how many lie in it
	ready  int // of them, in this backward pass
}

// megatronParam is a parameter.
type megatronParam struct {
	MegatronCell
	buffer   *megatronBuffer
	bucket   *megatronBucket
	at       int64      // in the buffers
	from, to int64      // the elements that this process steps
	master   *op.Tensor // those, in float32; nil: the parameter is
	grad     *op.Tensor // their gradient in the buffer
	own      *op.Tensor // that in float32, where the buffer is of another type
}

func (x *megatronParam) numel() int64 { return x.Cell.T.Numel() }

// MegatronCell is a parameter as it lies in the buffers.
type MegatronCell struct {
	*python.Cell
	Chunk  int  // of the model that this process has
	Tied   bool // the table of tokens, of which another stage of the pipeline has a copy
	Expert bool // of an expert, which are spread over GPUs
}

// NewMegatron puts DistributedDataParallel around a model and makes what its optimizer
// keeps; groups are the parameters of the optimizer's groups, and shared is how many elements
// those have whose gradients tensor-parallel processes add up, with sequence parallelism.
func NewMegatron(p *python.Interp, m *program.Megatron, cells []MegatronCell, groups [][]int, shared int64) *Megatron {
	e := &Megatron{p: p, Megatron: m, shared: shared, index: map[*autograd.Object]*megatronParam{}}
	for _, c := range cells {
		if a, b := cells[0].T.DType, c.T.DType; a != b {
			p.Fail("parameters of %s and %s in one model are not modelled with trainer: megatron", a, b)
		}
		x := &megatronParam{MegatronCell: c, to: c.T.Numel()}
		e.params = append(e.params, x)
		e.index[autograd.Of(c.T)] = x
	}
	e.divide()
	outer := p.Push()
	p.Label("DistributedDataParallel")
	p.Env().GradMode = false
	for _, c := range e.wrapped {
		for _, b := range c.buffers {
			e.lay(b)
			p.OnStream(autograd.ReduceStream, func() { e.allocate(b) })
		}
	}
	for _, x := range e.params {
		autograd.Of(x.Cell.T).Ready = e.arrived
	}
	if e.TE {
		e.scalars = append(e.scalars, e.vector(teWorkspace(p.Env().Arch), tensor.Uint8))
	}
	if e.Grouped {
		for range groupedStreams {
			e.scalars = append(e.scalars, e.vector(teWorkspace(p.Env().Arch), tensor.Uint8))
		}
	}
	p.Label("MegatronOptimizer")
	for _, part := range e.parts {
		e.scalars = append(e.scalars, e.vector(1, tensor.Float32)) // the scale of the loss
		if e.Scaler {
			for range 4 { // DynamicGradScaler: the least scale, two factors; found_inf
				e.scalars = append(e.scalars, e.vector(1, tensor.Float32))
			}
			e.scalars = append(e.scalars, e.vector(1, tensor.Int32)) // _dummy_overflow_buf
		}
		e.group(part, groups)
		for _, x := range part.order {
			x.copyToMaster(e)
		}
	}
	p.Pop(outer)
	return e
}

// divide makes the parts that there are, and for each model chunk their buffers, those of
// experts last.
func (e *Megatron) divide() {
	for _, expert := range []bool{false, true} {
		if !slices.ContainsFunc(e.params, func(x *megatronParam) bool { return x.Expert == expert }) {
			continue
		}
		part := &megatronPart{ranks: e.Ranks}
		if expert {
			part.ranks = e.ExpertRanks
		}
		e.parts = append(e.parts, part)
		for _, x := range e.params {
			if x.Expert != expert {
				continue
			}
			for len(e.wrapped) <= x.Chunk {
				e.wrapped = append(e.wrapped, &megatronWrapped{})
			}
			c := e.wrapped[x.Chunk]
			if len(c.buffers) == 0 || c.buffers[len(c.buffers)-1].of != part {
				b := &megatronBuffer{of: part, bucket: e.Bucket}
				if e.Pipeline != nil && (!e.Pipeline.First() || x.Chunk > 0) {
					b.bucket = 0 // other stages wait anyway
				}
				c.buffers = append(c.buffers, b)
			}
			x.buffer = c.buffers[len(c.buffers)-1]
			x.buffer.params = append(x.buffer.params, x)
		}
	}
}

// group makes the groups of a part's optimizer, in the order of their first parameters
// (_get_param_groups in megatron/core/optimizer/__init__.py).
func (e *Megatron) group(part *megatronPart, groups [][]int) {
	for of, all := range groups {
		members := slices.DeleteFunc(slices.Clone(all), func(k int) bool { return e.params[k].buffer.of != part })
		if len(members) > 0 {
			part.groups = append(part.groups, MegatronGroup{Of: of, Members: members})
		}
	}
	slices.SortStableFunc(part.groups, func(a, b MegatronGroup) int { return cmp.Compare(slices.Min(a.Members), slices.Min(b.Members)) })
	for _, g := range part.groups {
		e.inOrder(g.Members)
		for _, k := range g.Members {
			part.order = append(part.order, e.params[k])
		}
	}
}

func (e *Megatron) vector(n int64, d tensor.DType) *op.Tensor {
	return e.p.New(tensor.Contiguous(tensor.D(n)), d)
}

// teWorkspace is how many bytes Transformer Engine keeps for cuBLAS
// (get_cublas_workspace_size_bytes in transformer_engine/pytorch/module/base.py).
func teWorkspace(arch int) int64 {
	if arch >= 90 {
		return 32 * mib
	}
	return 4 * mib
}

// groupedStreams is on how many streams Transformer Engine multiplies the matrices of experts
// (get_multi_stream_cublas_workspace there).
const groupedStreams = 4

// paramAlign is to how many elements the distributed optimizer aligns parameters
// (_pad_start_of_param_if_needed).
const paramAlign = 64

// lay decides where parameters lie in a buffer, the last ones first, and which of their
// elements this process steps. With the distributed optimizer a table of tokens that another
// stage has, too, is a bucket by itself, so that both divide it equally.
func (e *Megatron) lay(in *megatronBuffer) {
	var at, start int64
	var bucket []*megatronParam
	end := func() {
		align := e.align(in.of.ranks)
		size := tensor.DivUp(at-start, align) * align
		if e.Distributed {
			part := size / in.of.ranks
			for _, x := range bucket {
				x.from, x.to = 0, min(max(start+part-x.at, 0), x.numel())
			}
		}
		start += size
		b := &megatronBucket{size: size, params: len(bucket)}
		for _, x := range bucket {
			x.bucket = b
		}
		in.buckets = append(in.buckets, b)
		at, bucket = start, nil
	}
	for _, x := range slices.Backward(in.params) {
		if e.Distributed {
			at = tensor.DivUp(at, paramAlign) * paramAlign
		}
		apart := x.Tied && e.Distributed
		if apart && len(bucket) > 0 {
			end()
		}
		x.at = at
		at += x.numel()
		bucket = append(bucket, x)
		if apart || in.bucket > 0 && at-start >= in.bucket {
			end()
		}
	}
	if len(bucket) > 0 {
		end()
	}
	in.numel = start
}

// align is to which multiple of elements a bucket is padded (_pad_end_of_bucket_if_needed).
func (e *Megatron) align(ranks int64) int64 {
	if !e.Distributed {
		return 1
	}
	return lcm(lcm(ranks, 128), e.Padded)
}

// allocate makes a buffer. With the distributed optimizer the parameters move into one of theirs.
func (e *Megatron) allocate(in *megatronBuffer) {
	p := e.p
	var params *op.Tensor
	if e.Distributed {
		params = e.vector(in.numel, e.params[0].Cell.T.DType)
		p.Mark(params, trace.Parameters)
	}
	in.grads = e.vector(in.numel, e.Grads)
	p.Mark(in.grads, trace.Gradients)
	var start int64
	for _, b := range in.buckets {
		l := tensor.Contiguous(tensor.D(b.size))
		l.Offset, start = start, start+b.size
		b.grads = p.Alias(in.grads, l, e.Grads)
	}
	for _, x := range in.params {
		l := tensor.Contiguous(x.Cell.T.Size)
		if e.Distributed {
			l = tensor.Contiguous(tensor.D(max(x.to-x.from, 0)))
		}
		l.Offset = x.at + x.from
		x.grad = p.Alias(in.grads, l, e.Grads)
	}
	if params == nil {
		return
	}
	for _, x := range slices.Backward(in.params) {
		l := tensor.Contiguous(x.Cell.T.Size)
		l.Offset = x.at
		p.MoveInto(x.Cell.T, params, l)
	}
	p.Drop(params)
}

// copyToMaster makes the copy in float32 of what this process steps of a parameter.
func (x *megatronParam) copyToMaster(e *Megatron) {
	if x.to <= x.from || x.Cell.T.DType == tensor.Float32 {
		return
	}
	p := e.p
	clone := e.vector(x.to-x.from, x.Cell.T.DType)
	x.master = p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: tensor.Float32}, clone)
	p.Mark(x.master, trace.Parameters)
	p.Drop(clone)
}

// inOrder sorts the parameters of a group as the optimizer has them: the distributed one as they
// lie in the buffers (_build_optimizer_group_ranges).
func (e *Megatron) inOrder(members []int) {
	if e.Distributed {
		slices.SortFunc(members, func(a, b int) int {
			return cmp.Or(cmp.Compare(e.params[a].Chunk, e.params[b].Chunk), cmp.Compare(b, a))
		})
	}
}

// Optimizers is how many there are, one after another.
func (e *Megatron) Optimizers() int { return len(e.parts) }

// Groups are those of the n-th optimizer, with the parameters that this process steps.
func (e *Megatron) Groups(n int) []MegatronGroup {
	out := slices.Clone(e.parts[n].groups)
	for i, g := range out {
		out[i].Members = slices.DeleteFunc(slices.Clone(g.Members), func(k int) bool { return e.params[k].to <= e.params[k].from })
	}
	return out
}

// arrived is the hook of a parameter whose gradient is ready (_make_backward_post_hook). With
// overlap_grad_reduce a bucket is reduced as soon as it is full, after the last microbatch.
func (e *Megatron) arrived(leaf *autograd.Object) {
	g := leaf.Grad
	if g == nil {
		return
	}
	if x := e.index[leaf]; x.buffer.bucket > 0 && e.wrapped[x.Chunk].passes == e.Accumulation-1 && !e.virtual() {
		if x.bucket.ready++; x.bucket.ready == x.bucket.params {
			e.check(x.bucket)
		}
	}
	leaf.Grad = nil
	e.p.Release(g)
}

// virtual reports whether there are virtual stages, with which the schedule says when
// gradients are reduced (align_grad_reduce).
func (e *Megatron) virtual() bool { return e.Pipeline != nil && e.Pipeline.Chunks > 1 }

// Backward is a backward pass of a model chunk, after which gradients may be reduced.
func (e *Megatron) Backward(chunk int) { e.wrapped[chunk].passes++ }

// Reduce is start_grad_sync of a model chunk, as far as it has not begun.
func (e *Megatron) Reduce(chunk int) {
	for _, in := range e.wrapped[chunk].buffers {
		for _, b := range in.buckets {
			if b.ready < b.params {
				b.ready = b.params
				e.check(b)
			}
		}
	}
}

// check is check_grads of a bucket: whether its norm is NaN.
func (e *Megatron) check(b *megatronBucket) {
	if e.Checks {
		two := 2.0
		e.p.Drop(e.p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, b.grads))
	}
}

// Steps returns what the optimizer steps of the parameter k, with its gradient.
func (e *Megatron) Steps(k int) (t, grad *op.Tensor) {
	x := e.params[k]
	t = x.master
	if t == nil {
		t = x.Cell.T
	}
	if e.Grads == tensor.Float32 {
		return t, x.grad
	}
	return t, x.own
}

// Finalize is finalize_model_grads.
func (e *Megatron) Finalize() {
	for k, c := range e.wrapped {
		e.Reduce(k)
		for _, in := range c.buffers {
			for _, b := range in.buckets {
				b.ready = 0
			}
		}
		c.passes = 0
	}
	if e.shared > 0 { // _allreduce_non_tensor_model_parallel_grads
		e.p.Drop(e.vector(e.shared, e.Grads))
	}
	for range e.wrapped {
		if e.PerToken { // num_tokens > 0; 1.0 / num_tokens, which gradients are scaled by, is as small
			e.p.Drop(e.vector(1, tensor.Bool))
		}
	}
}

// Prepare is what comes before the optimizer's own step (prepare_grads): gradients of
// another type than float32 are copied.
func (e *Megatron) Prepare() {
	for _, part := range e.parts {
		for _, x := range part.order {
			if x.to > x.from && e.Grads != tensor.Float32 {
				x.own = e.vector(x.to-x.from, tensor.Float32)
				e.p.Mark(x.own, trace.Gradients)
			}
		}
	}
	for _, part := range e.parts {
		e.norm(part)
	}
}

// apexNorms is how many sums amp_C.multi_tensor_l2norm makes of all gradients
// (csrc/multi_tensor_l2norm_kernel.cu of Apex and of Transformer Engine).
const apexNorms = 320

// norm is get_grad_norm_fp32 (megatron/core/optimizer/clip_grads.py). Gradients are scaled in place.
func (e *Megatron) norm(part *megatronPart) {
	p := e.p
	noop := e.vector(1, tensor.Int32)
	var norms []*op.Tensor
	if e.Fused {
		norms = append(norms, e.vector(apexNorms, tensor.Float32), e.vector(1, tensor.Float32))
	} else {
		two := 2.0
		for _, x := range part.order {
			if x.to > x.from && !(x.Tied && !e.Pipeline.First()) { // param_is_not_shared
				norms = append(norms, p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, x.grad))
			}
		}
	}
	p.Drop(norms...)
	total := e.vector(1, tensor.Float32)
	square := e.vector(1, tensor.Float32)
	p.Drop(square, total, noop)
}

// Copied is what comes after the step of the n-th optimizer (_copy_main_params_to_model_params):
// without kernels that do it at once, with a scaler of the loss, each parameter is scaled by 1.
func (e *Megatron) Copied(n int) {
	for _, x := range e.parts[n].order {
		if e.Scaler && !e.Fused && x.master != nil {
			e.p.Drop(e.vector(x.to-x.from, tensor.Float32))
		}
	}
}

// ZeroGrad is zero_grad_buffer of the model and zero_grad of the optimizer.
func (e *Megatron) ZeroGrad() {
	for _, part := range e.parts {
		for _, x := range part.order {
			e.p.Drop(x.own)
			x.own = nil
		}
	}
}

// lcm is the least common multiple of two positive numbers.
func lcm(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
