package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// DeepSpeed's engine with stages 1 to 3 of ZeRO, on one of its processes, as version 0.19
// has it (deepspeed/runtime/engine.py and deepspeed/runtime/zero/stage_1_and_2.py). The
// parameters of each group become views of one flat tensor, of which each process has a part
// in float32, with the optimizer's state of it. Gradients are copied to a bucket as they become
// ready, and reduced when it is full; of stage 2, a process keeps those of its part.

// Engine is DeepSpeedEngine.
type Engine struct {
	p *python.Interp
	*program.DeepSpeed
	ranks  int64
	step   func(group int, master, grad *op.Tensor) // of the optimizer, on a part in float32
	groups []*zeroGroup
	params []*zeroParam
	index  map[*autograd.Object]*zeroParam

	micro    int64 // micro-batches that were stepped
	ready    bool  // the buckets are there (ready_for_gradients)
	epilogue bool  // a backward pass has been ended since the last forward pass
	buffers  []*op.Tensor
	current  int // of buffers
	bucket   []bucketed
	elements int64
	large    *zeroParam // larger than a bucket (extra_large_param_to_reduce)
	previous []*zeroParam

	scratch *op.Tensor                // temp_grad_buffer_for_gpu_offload
	pass    int64                     // backward passes since the last step (micro_step_id)
	norms   []*op.Tensor              // norm_for_param_grads
	onHost  map[*zeroParam]*op.Tensor // accumulated_grads_in_cpu

	three *zero3 // stage 3; nil: another

	own    *op.Tensor // grads_in_partition
	filled int64
	norm   *op.Tensor // _global_grad_norm
}

// bucketed is a parameter in the bucket, with the gradient that is reduced.
type bucketed struct {
	*zeroParam
	grad *op.Tensor
}

// zeroGroup is a parameter group.
type zeroGroup struct {
	params []*zeroParam // in the order of the flat tensor
	mine   []*zeroParam // of which this process has a part
	flat   *op.Tensor
	part   int64      // elements of each process's part
	master *op.Tensor // this one's, in float32
	first  int64      // where it begins in the first of mine
	grad   *op.Tensor // of master, in host memory, with offload_optimizer

	sums     []*op.Tensor // all_grad_tensors; nil: none
	averaged []*op.Tensor // averaged_gradients
}

// zeroParam is a parameter.
type zeroParam struct {
	cell    *python.Cell
	group   *zeroGroup
	at      int64 // in the flat tensor
	mine    bool
	reduced bool       // since the last epilogue (params_already_reduced)
	accum   *op.Tensor // grad_accum
}

func (x *zeroParam) leaf() *autograd.Object { return autograd.Of(x.cell.T) }
func (x *zeroParam) numel() int64           { return x.cell.T.Numel() }

func newEngine(p *python.Interp, parallel *program.Parallel) *Engine {
	return &Engine{p: p, DeepSpeed: parallel.DeepSpeed, ranks: parallel.Ranks, index: map[*autograd.Object]*zeroParam{}}
}

// NewEngine is deepspeed.initialize of a model that is on the device, or was divided by
// InitDivided (begun); groups are the parameters of the optimizer, which step steps.
func NewEngine(p *python.Interp, parallel *program.Parallel, root *python.Module, groups [][]*python.Cell, begun *Engine, step func(group int, master, grad *op.Tensor)) *Engine {
	e := begun
	if e == nil {
		e = newEngine(p, parallel)
	}
	e.step = step
	outer := p.Push()
	p.Label("DeepSpeedZeroOptimizer")
	p.Env().GradMode = false
	if e.Stage == 3 {
		if e.three == nil {
			e.three = newZero3(e)
		}
		e.three.divide(root)
		e.three.train(root, groups)
		p.Pop(outer)
		return e
	}
	for _, cells := range groups {
		if len(cells) > 0 {
			e.addGroup(cells)
		}
	}
	if e.Offload {
		e.offload()
		p.Pop(outer)
		return e
	}
	var last *op.Tensor // the function's own variable
	var held []*op.Tensor
	for _, g := range e.groups { // initialize_optimizer_states
		t := e.vector(g.part, tensor.Float32)
		if last != nil {
			held = append(held, last)
		}
		last = t
	}
	p.Drop(held...)
	p.Drop(last)
	e.hook()
	p.Pop(outer)
	return e
}

// hook watches the gradients of all parameters (create_gradient_handling_hooks).
func (e *Engine) hook() {
	for _, x := range e.params {
		x.leaf().Ready = e.arrived
	}
}

func (e *Engine) vector(n int64, d tensor.DType) *op.Tensor {
	return e.p.New(tensor.Contiguous(tensor.D(n)), d)
}

func (e *Engine) scalar(d tensor.DType) *op.Tensor { return e.p.New(tensor.Contiguous(tensor.D()), d) }

// addGroup flattens the parameters of a group and copies this process's part.
func (e *Engine) addGroup(cells []*python.Cell) {
	p, g := e.p, &zeroGroup{}
	p.EmptyCache()
	var n int64
	for _, c := range e.ordered(cells) {
		if a, b := c.T.DType, cells[0].T.DType; a != b {
			p.Fail("parameters of %s and %s in one group are not modelled with parallel.deepspeed", a, b)
		}
		x := &zeroParam{cell: c, group: g, at: n}
		g.params, n = append(g.params, x), n+c.T.Numel()
		e.index[x.leaf()] = x
	}
	for _, c := range cells {
		e.params = append(e.params, e.index[autograd.Of(c.T)])
	}
	align := 2 * e.ranks
	total := tensor.DivUp(n, align) * align
	var pad *op.Tensor
	d := cells[0].T.DType
	if total != n {
		pad = e.vector(total-n, d)
	}
	tensors := make([]*op.Tensor, len(g.params), len(g.params)+1)
	for i, x := range g.params {
		tensors[i] = x.cell.T
	}
	if pad != nil {
		tensors = append(tensors, pad)
	}
	g.flat = e.flatten(tensors)
	p.Mark(g.flat, trace.Parameters)
	p.Drop(pad)
	for _, x := range g.params {
		l := tensor.Contiguous(x.cell.T.Size)
		l.Offset = x.at
		p.MoveInto(x.cell.T, g.flat, l)
	}
	g.part = total / e.ranks
	begin := g.part * e.Rank
	for _, x := range g.params {
		if end := x.at + x.numel(); x.at < begin+g.part && (x.at >= begin || end > begin) && x.numel() > 0 {
			x.mine = true
			if len(g.mine) == 0 && x.at < begin {
				g.first = begin - x.at
			}
			g.mine = append(g.mine, x)
		}
	}
	g.master = e.vector(g.part, d) // the clone
	if e.Offload {
		e.toHost(g)
	} else if d != tensor.Float32 {
		half := g.master
		g.master = e.vector(g.part, tensor.Float32)
		p.Drop(half)
	}
	p.Mark(g.master, trace.OptimizerState)
	e.groups = append(e.groups, g)
}

// ordered are the parameters in the order of the flat tensor: their own, or with
// round_robin_gradients every process's by turns.
func (e *Engine) ordered(cells []*python.Cell) []*python.Cell {
	if !e.RoundRobin {
		return cells
	}
	var out []*python.Cell
	for r := range min(e.ranks, int64(len(cells))) {
		for i := r; i < int64(len(cells)); i += e.ranks {
			out = append(out, cells[i])
		}
	}
	return out
}

// flatten is _flatten_dense_tensors: one tensor alone is not copied, unless it is not
// contiguous. The result is the caller's.
func (e *Engine) flatten(ts []*op.Tensor) *op.Tensor {
	p := e.p
	var n int64
	var copies []*op.Tensor
	d := ts[0].DType
	for _, t := range ts {
		n += t.Numel()
		d = tensor.Promote(d, t.DType)
		if !t.IsContiguous() {
			copies = append(copies, p.New(tensor.Contiguous(t.Size), t.DType))
		}
	}
	if len(ts) == 1 {
		if len(copies) > 0 {
			return copies[0]
		}
		l := tensor.Contiguous(tensor.D(n))
		l.Offset = ts[0].Offset
		return p.Alias(ts[0], l, ts[0].DType)
	}
	out := e.vector(n, d)
	p.Drop(copies...)
	return out
}

// convert is Tensor.to of another type; nil if it is the same.
func (e *Engine) convert(t *op.Tensor, d tensor.DType) *op.Tensor {
	if t.DType == d {
		return nil
	}
	return e.p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: d}, t)
}

// CheckTypes is what DeepSpeed does before it moves the model: on GPUs older than Ampere,
// whether there is bfloat16 is tried out (torch.cuda.is_bf16_supported).
func CheckTypes(p *python.Interp, parallel *program.Parallel) {
	if d := parallel.DeepSpeed; d != nil && d.DType == tensor.BFloat16 && p.Env().Arch < 80 {
		p.Drop(p.New(tensor.Contiguous(tensor.D(1)), tensor.BFloat16))
	}
}

// boundary reports whether the optimizer steps after the micro-batch at work.
func (e *Engine) boundary() bool { return (e.micro+1)%e.Accumulation == 0 }

// PreForward is what DeepSpeedEngine.forward does before it calls the model.
func (e *Engine) PreForward() {
	if e.epilogue {
		for _, x := range e.params {
			e.p.Drop(x.accum)
			x.accum = nil
		}
	}
	e.epilogue = false
}

// PostForward watches the results of the model: their gradients are divided by the number of
// micro-batches (register_output_backward_hooks).
func (e *Engine) PostForward(v python.Value) {
	if e.Trainer { // scale_wrt_gas=False
		return
	}
	each(v, func(t *op.Tensor) {
		e.p.HookGradient(t, func(g *op.Tensor) *op.Tensor {
			return e.p.New(g.LikeDense(), g.DType)
		})
	})
}

// Backward is DeepSpeedEngine.backward.
func (e *Engine) Backward(loss *op.Tensor, retain bool) {
	p := e.p
	var divided *op.Tensor
	if !e.Trainer {
		divided = e.divided(loss)
	}
	scaled := e.divided(loss)
	p.Backward(scaled, nil, retain)
	outer := p.Push()
	p.Label("DeepSpeedEngine.backward")
	p.Env().GradMode = false
	if z := e.three; z != nil {
		z.reduceParts()
		z.leftovers()
	} else if e.Stage == 2 {
		e.endBackward()
	} else if e.boundary() {
		e.reduceGradients()
	}
	if e.accumulates() {
		for _, x := range e.params {
			e.fill(x)
		}
	}
	p.Pop(outer)
	p.Drop(scaled)
	p.Drop(divided)
}

// divided is the loss divided by, or multiplied with, a number.
func (e *Engine) divided(loss *op.Tensor) *op.Tensor {
	one := op.Number{Set: true, Float: true, Value: 1}
	return e.p.Do1(aten.Div, &aten.BinaryArgs{Other: one}, loss)
}

// accumulates reports whether gradients are summed up in tensors beside them
// (use_grad_accum_attribute).
func (e *Engine) accumulates() bool { return e.Stage == 1 && e.Accum != e.DType }

// mapped lists the processes that have a part of x, with where in x each begins.
func (e *Engine) mapped(x *zeroParam) (ranks, begins []int64) {
	part := x.group.part
	for r := x.at / part; r*part < x.at+x.numel(); r++ {
		ranks, begins = append(ranks, r), append(begins, max(r*part-x.at, 0))
	}
	return ranks, begins
}

// dropGrad sets .grad to None.
func (e *Engine) dropGrad(x *zeroParam) {
	if g := x.leaf().Grad; g != nil {
		x.leaf().Grad = nil
		e.p.Release(g)
	}
}

// clearGrad is clear_grad_attribute.
func (e *Engine) clearGrad(x *zeroParam) {
	if e.accumulates() {
		e.p.Drop(x.accum)
		x.accum = nil
		return
	}
	e.dropGrad(x)
}

// grad is the gradient that is accumulated in (get_param_gradient_attribute); nil: none.
func (e *Engine) grad(x *zeroParam) *op.Tensor {
	if e.accumulates() {
		return x.accum
	}
	if g := x.leaf().Grad; g != nil {
		return &g.Tensor
	}
	return nil
}

// forReduction is get_gradient_for_reduction, with a reference for the caller; nil: none.
func (e *Engine) forReduction(x *zeroParam) *op.Tensor {
	t := e.grad(x)
	if t == nil {
		return nil
	}
	if c := e.convertTo(t); c != nil {
		return c
	}
	return e.p.Keep(t)
}

// convertTo is a copy of an accumulated gradient in the type of the parameters; nil: it has that type.
func (e *Engine) convertTo(t *op.Tensor) *op.Tensor {
	if !e.accumulates() {
		return nil
	}
	return e.convert(t, e.DType)
}

// moveInto makes a gradient a view of a buffer (grad.data = ...).
func (e *Engine) moveInto(t, buffer *op.Tensor, at int64) {
	l := tensor.Contiguous(t.Size)
	l.Offset = at
	e.p.MoveInto(t, buffer, l)
}

// onReduction runs f on the stream of reductions, if there is one.
func (e *Engine) onReduction(f func()) {
	if e.Overlap {
		e.p.OnStream(autograd.ReduceStream, f)
		return
	}
	f()
}
