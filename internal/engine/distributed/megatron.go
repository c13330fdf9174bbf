package distributed

import (
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
	params []*megatronParam // in the order of Module.parameters
	index  map[*autograd.Object]*megatronParam
	parts  []*megatronPart
	shared int64 // elements of gradients that tensor-parallel processes add up

	scalars []*op.Tensor
	passes  int64 // backward passes since the last step
}

// megatronPart is the parameters that the same processes have, with a buffer and an optimizer
// of their own: those of experts that are spread over GPUs, and all others.
type megatronPart struct {
	ranks   int64            // data-parallel processes
	params  []*megatronParam // in the order of Module.parameters
	order   []*megatronParam // in the order of the optimizer's groups
	buffer  *op.Tensor       // grad_data
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
	of       *megatronPart
	cell     *python.Cell
	bucket   *megatronBucket
	at       int64      // in the buffers
	from, to int64      // the elements that this process steps
	master   *op.Tensor // those, in float32; nil: the parameter is
	grad     *op.Tensor // their gradient in the buffer
	own      *op.Tensor // that in float32, where the buffer is of another type
}

func (x *megatronParam) numel() int64 { return x.cell.T.Numel() }

// NewMegatron puts DistributedDataParallel around a model and makes what its optimizer
// keeps; groups are the parameters of the optimizer's groups, expert says which are those of
// experts, and shared is how many elements those have whose gradients tensor-parallel processes
// add up, with sequence parallelism.
func NewMegatron(p *python.Interp, m *program.Megatron, cells []*python.Cell, groups [][]int, expert []bool, shared int64) *Megatron {
	dense, experts := &megatronPart{ranks: m.Ranks}, &megatronPart{ranks: m.ExpertRanks}
	e := &Megatron{p: p, Megatron: m, shared: shared, index: map[*autograd.Object]*megatronParam{}, parts: []*megatronPart{dense}}
	for k, c := range cells {
		if a, b := cells[0].T.DType, c.T.DType; a != b {
			p.Fail("parameters of %s and %s in one model are not modelled with trainer: megatron", a, b)
		}
		x := &megatronParam{cell: c, to: c.T.Numel(), of: dense}
		if expert[k] {
			x.of = experts
		}
		x.of.params = append(x.of.params, x)
		e.params = append(e.params, x)
		e.index[autograd.Of(c.T)] = x
	}
	outer := p.Push()
	p.Label("DistributedDataParallel")
	p.Env().GradMode = false
	if len(experts.params) > 0 {
		e.parts = append(e.parts, experts)
	}
	for _, part := range e.parts {
		numel := e.lay(part)
		p.OnStream(autograd.ReduceStream, func() { e.allocate(part, numel) })
	}
	for _, x := range e.params {
		autograd.Of(x.cell.T).Ready = e.arrived
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
		for _, members := range groups {
			for _, k := range e.inOrder(members) {
				if x := e.params[k]; x.of == part {
					x.copyToMaster(e)
					part.order = append(part.order, x)
				}
			}
		}
	}
	p.Pop(outer)
	return e
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

// lay decides where the parameters of a part lie in its buffers, the last ones first, and which
// of their elements this process steps. It returns how many elements the buffers have.
func (e *Megatron) lay(p *megatronPart) int64 {
	var at, start int64
	var bucket []*megatronParam
	end := func() {
		align := e.align(p.ranks)
		size := tensor.DivUp(at-start, align) * align
		if e.Distributed {
			part := size / p.ranks
			for _, x := range bucket {
				x.from, x.to = 0, min(max(start+part-x.at, 0), x.numel())
			}
		}
		start += size
		b := &megatronBucket{size: size, params: len(bucket)}
		for _, x := range bucket {
			x.bucket = b
		}
		p.buckets = append(p.buckets, b)
		at, bucket = start, nil
	}
	for _, x := range slices.Backward(p.params) {
		if e.Distributed {
			at = tensor.DivUp(at, paramAlign) * paramAlign
		}
		x.at = at
		at += x.numel()
		bucket = append(bucket, x)
		if e.Bucket > 0 && at-start >= e.Bucket {
			end()
		}
	}
	if len(bucket) > 0 {
		end()
	}
	return start
}

// align is to which multiple of elements a bucket is padded (_pad_end_of_bucket_if_needed).
func (e *Megatron) align(ranks int64) int64 {
	if !e.Distributed {
		return 1
	}
	return lcm(lcm(ranks, 128), e.Padded)
}

// allocate makes the buffers of a part. With the distributed optimizer the parameters move into
// theirs.
func (e *Megatron) allocate(part *megatronPart, numel int64) {
	p := e.p
	var params *op.Tensor
	if e.Distributed {
		params = e.vector(numel, e.params[0].cell.T.DType)
		p.Mark(params, trace.Parameters)
	}
	part.buffer = e.vector(numel, e.Grads)
	p.Mark(part.buffer, trace.Gradients)
	var start int64
	for _, b := range part.buckets {
		l := tensor.Contiguous(tensor.D(b.size))
		l.Offset, start = start, start+b.size
		b.grads = p.Alias(part.buffer, l, e.Grads)
	}
	for _, x := range part.params {
		l := tensor.Contiguous(x.cell.T.Size)
		if e.Distributed {
			l = tensor.Contiguous(tensor.D(max(x.to-x.from, 0)))
		}
		l.Offset = x.at + x.from
		x.grad = p.Alias(part.buffer, l, e.Grads)
	}
	if params == nil {
		return
	}
	for _, x := range slices.Backward(part.params) {
		l := tensor.Contiguous(x.cell.T.Size)
		l.Offset = x.at
		p.MoveInto(x.cell.T, params, l)
	}
	p.Drop(params)
}

// copyToMaster makes the copy in float32 of what this process steps of a parameter.
func (x *megatronParam) copyToMaster(e *Megatron) {
	if x.to <= x.from || x.cell.T.DType == tensor.Float32 {
		return
	}
	p := e.p
	clone := e.vector(x.to-x.from, x.cell.T.DType)
	x.master = p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: tensor.Float32}, clone)
	p.Mark(x.master, trace.Parameters)
	p.Drop(clone)
}

// inOrder is in which order the optimizer has the parameters of a group: the distributed one
// as they lie in the buffer (_build_optimizer_group_ranges).
func (e *Megatron) inOrder(members []int) []int {
	out := slices.Clone(members)
	if e.Distributed {
		slices.Reverse(out)
	}
	return out
}

// Optimizers is how many there are, one after another.
func (e *Megatron) Optimizers() int { return len(e.parts) }

// Stepped are the parameters of a group that this process steps with the n-th optimizer, in its
// order.
func (e *Megatron) Stepped(n int, members []int) []int {
	return slices.DeleteFunc(e.inOrder(members), func(k int) bool {
		x := e.params[k]
		return x.of != e.parts[n] || x.to <= x.from
	})
}

// arrived is the hook of a parameter whose gradient is ready (_make_backward_post_hook). With
// overlap_grad_reduce a bucket is reduced as soon as it is full, after the last microbatch.
func (e *Megatron) arrived(leaf *autograd.Object) {
	g := leaf.Grad
	if g == nil {
		return
	}
	if b := e.index[leaf].bucket; e.Bucket > 0 && e.passes == e.Accumulation-1 {
		if b.ready++; b.ready == b.params {
			e.check(b)
		}
	}
	leaf.Grad = nil
	e.p.Release(g)
}

// Backward is a backward pass, after which gradients may be reduced.
func (e *Megatron) Backward() { e.passes++ }

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
		t = x.cell.T
	}
	if e.Grads == tensor.Float32 {
		return t, x.grad
	}
	return t, x.own
}

// Prepare is what comes before the optimizer's own step (prepare_grads): gradients of
// another type than float32 are copied.
func (e *Megatron) Prepare() {
	for _, part := range e.parts {
		for _, b := range part.buckets {
			if b.ready < b.params {
				e.check(b)
			}
			b.ready = 0
		}
	}
	e.passes = 0
	if e.shared > 0 { // _allreduce_non_tensor_model_parallel_grads
		e.p.Drop(e.vector(e.shared, e.Grads))
	}
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
			if x.to > x.from {
				norms = append(norms, p.Do1(aten.VectorNorm, &aten.NormArgs{P: &two}, x.grad))
			}
		}
	}
	p.Drop(norms...)
	total := e.vector(1, tensor.Float32)
	square := e.vector(1, tensor.Float32)
	p.Drop(square, total, noop)
}

// Copied is what comes after the step of the n-th optimizer (_copy_main_params_to_model_params): without
// kernels that do it at once, with a scaler of the loss, each parameter is scaled by 1.
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
