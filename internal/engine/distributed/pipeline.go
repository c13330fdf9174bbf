package distributed

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Pipeline is a schedule of torch.distributed.pipelining with the stages of one rank
// (torch/distributed/pipelining/stage.py and schedules.py of PyTorch 2.6). What other ranks
// send lies in buffers that are made in the first step and stay.
type Pipeline struct {
	p      *python.Interp
	job    *program.Job
	pl     *program.Pipeline
	stages []*stage
	aux    *python.Module // holds loss_fn
	began  bool           // the stages were initialized
	losses []python.Value // _internal_losses

	// FirstBackward is called in each step before its first backward pass.
	FirstBackward func()
}

// stage is a PipelineStage.
type stage struct {
	*Pipeline
	index    int
	module   *python.Module
	reducer  *Reducer       // DistributedDataParallel around the module; nil: it is not
	left     int            // backward passes that are to come in this step
	received [][]*op.Tensor // args_recv_info: by microbatch, what the stage before sends
	returned [][]*op.Tensor // grad_recv_info: the gradients that the next stage sends
	forward  map[int]pass   // fwd_cache
	outputs  []python.Value // output_chunks
}

// pass is a forward pass whose backward pass is to come.
type pass struct{ outputs, inputs []*op.Tensor }

// NewPipeline makes a PipelineStage of each module, around which there may be DistributedDataParallel, and the
// schedule.
func NewPipeline(p *python.Interp, job *program.Job, modules []*python.Module, reducers []*Reducer, aux *python.Module) *Pipeline {
	s := &Pipeline{p: p, job: job, pl: job.Parallel.Pipeline, aux: aux}
	for k, index := range s.pl.Own() {
		s.stages = append(s.stages, &stage{Pipeline: s, index: index, module: modules[k], reducer: reducers[k], forward: map[int]pass{}})
	}
	return s
}

// Step is schedule.step: inputs are the tensors of the batch that the rank takes, and
// target is that of the loss. It returns the losses of the microbatches.
func (s *Pipeline) Step(inputs []*op.Tensor, target *op.Tensor) []python.Value {
	p := s.p
	for _, st := range s.stages {
		st.clear()
		st.left = int(s.pl.Microbatches)
	}
	chunks := make([][]*op.Tensor, len(inputs))
	for i, t := range inputs {
		chunks[i] = s.split(t)
	}
	targets := s.split(target)
	if !s.began {
		s.began = true
		for i, st := range s.stages {
			st.initialize(s.inputs(i, chunks, 0))
		}
	}
	first := true
	for _, a := range s.pl.Actions() {
		i := (a.Stage - s.stages[0].index) / int(s.pl.Ranks)
		st := s.stages[i]
		if !a.Backward {
			p.Phase = trace.Forward
			st.forwardOne(a.Microbatch, s.inputs(i, chunks, a.Microbatch), targets[a.Microbatch])
			continue
		}
		if first {
			s.FirstBackward()
			first = false
		}
		p.Phase = trace.Backward
		st.backwardOne(a.Microbatch)
	}
	p.Phase = trace.Forward
	losses := s.losses
	s.losses = nil
	if st := s.stages[len(s.stages)-1]; st.last() {
		st.merge()
	}
	for i := len(chunks) - 1; i >= 0; i-- {
		p.Drop(chunks[i]...)
	}
	p.Drop(targets...)
	return losses
}

func (s *stage) first() bool { return s.index == 0 }
func (s *stage) last() bool  { return s.index == len(s.pl.Stages)-1 }

// fail reports an error of the stage, at the place where the spec has it begin.
func (s *stage) fail(format string, args ...any) {
	at := &s.pl.Stages[s.index]
	panic(&program.Error{File: at.File, Line: at.Line, Column: at.Column, Msg: fmt.Sprintf("parallel.pp: "+format, args...)})
}

// clear is clear_runtime_states: what the step before left is freed.
func (s *stage) clear() {
	s.p.LetGoAll(s.outputs)
	s.outputs = nil
	for _, buffers := range s.received {
		for _, t := range buffers {
			if o := autograd.Of(t); o.Grad != nil {
				g := o.Grad
				o.Grad = nil
				s.p.Release(g)
			}
		}
	}
}

// split is torch.tensor_split of a tensor of the batch.
func (s *Pipeline) split(t *op.Tensor) []*op.Tensor {
	n := s.pl.Microbatches
	out := make([]*op.Tensor, n)
	l := t.Layout
	rows := l.Dim(0) / n
	l.Size = l.Size.Set(0, rows)
	for i := range out {
		out[i] = s.p.ViewOf(t, l)
		l.Offset += rows * l.Stride.At(0)
	}
	return out
}

// inputs are the parts of a microbatch of what the i-th stage of the rank takes of the batch,
// which is the first if there are several.
func (s *Pipeline) inputs(i int, chunks [][]*op.Tensor, microbatch int) []*op.Tensor {
	if i > 0 {
		return nil
	}
	out := make([]*op.Tensor, len(chunks))
	for i := range chunks {
		out[i] = chunks[i][microbatch]
	}
	return out
}

// call runs the stage's module, under autocast if the job has it.
func (s *stage) call(args ...*op.Tensor) python.Value {
	p := s.p
	values := make([]python.Value, len(args))
	for i, t := range args {
		values[i] = p.Hold(python.Value{T: t})
	}
	r := s.reducer
	if r == nil {
		return s.lower(func() python.Value { return p.CallModule(s.module, nil, values) })
	}
	held := p.HoldAll(values)
	r.PreForward()
	v := r.PostForward(s.lower(func() python.Value { return p.CallModule(s.module, nil, values) }))
	p.LetGoAll(held)
	return v
}

// lower runs f as a function that torch.autocast decorates.
func (s *Pipeline) lower(f func() python.Value) python.Value {
	if !s.job.Autocast {
		return f()
	}
	s.p.EnterAutocast(s.job.LowerType)
	v := f()
	s.p.ExitAutocast()
	return v
}

// tensors are those of what a stage returned: one, or a tuple.
func (s *stage) tensors(v python.Value) []*op.Tensor {
	items := []python.Value{v}
	if v.List != nil {
		items = v.List.Items
	}
	next := s.index + 1
	if sent := next < len(s.pl.Stages); sent && (len(items) != s.pl.Stages[next].Received || v.List != nil && len(items) == 1) {
		s.fail("stage %d would send a list or tuple to the next one; what is computed before a split and used after it must be tensors", s.index)
	}
	var out []*op.Tensor
	for _, it := range items {
		if it.T == nil {
			s.fail("stage %d returns what is no tensor; PipelineStage takes a tensor or a tuple of tensors", s.index)
		}
		out = append(out, it.T)
	}
	return out
}

// initialize is _initialize_stage: the shapes of results are inferred by a forward pass, then
// the buffers are made.
func (s *stage) initialize(inputs []*op.Tensor) {
	p := s.p
	outs := s.inferShapes(inputs)
	p.Phase = trace.Other
	buffers := func(of []program.Boundary, c trace.Category, grad bool) [][]*op.Tensor {
		all := make([][]*op.Tensor, s.pl.Microbatches)
		for i := range all {
			for _, b := range of {
				if grad && !b.DType.IsFloating() {
					s.fail("a stage gets a tensor of %v from the one before it: its buffer would require a gradient, which PyTorch refuses; compute it in each stage, or make it an input of the batch", b.DType)
				}
				t := p.LeafOf(c, b.DType, grad, tensor.Contiguous(b.Size))
				all[i] = append(all[i], t)
			}
		}
		return all
	}
	s.received = make([][]*op.Tensor, s.pl.Microbatches)
	if !s.first() {
		p.Label("recv")
		s.received = buffers(s.pl.Stages[s.index].Takes, trace.Activations, true)
	}
	if !s.last() {
		p.Label("recv_grad")
		s.returned = buffers(outs, trace.Gradients, false)
	}
	p.Op = 0
}

// inferShapes is _shape_inference: the module runs once without gradients, with zeros in the
// place of what the stage before sends.
func (s *stage) inferShapes(inputs []*op.Tensor) []program.Boundary {
	p := s.p
	takes := s.pl.Stages[s.index].Takes
	if !s.first() {
		s.receiveObject(metaPickle(takes))
	} else {
		takes = boundaries(inputs)
	}
	p.Phase = trace.Forward
	p.Label("zeros_like")
	var args []*op.Tensor
	for _, b := range takes {
		l := b.Layout
		if l = (tensor.Layout{Size: l.Size, Stride: l.Stride}); !l.IsDense() {
			l = tensor.Contiguous(l.Size)
		}
		args = append(args, p.New(l, b.DType))
	}
	p.Op = 0
	given := args
	if !s.first() {
		given = append(args[:len(args):len(args)], inputs...)
	}
	var out python.Value
	p.InGradMode(program.NoGrad, func() { out = s.call(given...) })
	outs := boundaries(s.tensors(out))
	for _, b := range outs { // Tensor.to("meta") makes it so
		if !b.IsDense() {
			s.fail("stage %d returns a tensor of shape %v with strides %v, which has gaps; PyTorch refuses this (Stage %d forward outputs: value has a stride mismatch); return x.contiguous()", s.index, b.Size, b.Stride, s.index)
		}
	}
	if !s.last() {
		s.sendObject(metaPickle(outs))
	}
	for i := len(args) - 1; i >= 0; i-- {
		p.Drop(args[i])
	}
	p.LetGo(out)
	return outs
}

func boundaries(ts []*op.Tensor) []program.Boundary {
	var out []program.Boundary
	for _, t := range ts {
		out = append(out, program.Boundary{Layout: t.Layout, DType: t.DType})
	}
	return out
}

// receiveObject is recv_object_list of one object of n bytes: its size, the sum of sizes, the
// bytes, and where it begins and ends, which are tensors of one number.
func (s *Pipeline) receiveObject(n int64) {
	p := s.p
	p.Phase = trace.Other
	p.Label("recv_object_list")
	number := func() *op.Tensor { return p.New(tensor.Contiguous(tensor.D(1)), tensor.Int64) }
	size := number()
	p.Drop(number())
	object := p.New(tensor.Contiguous(tensor.D(n)), tensor.Uint8)
	p.Drop(number())
	offset := number()
	p.Drop(offset, size, object)
	p.Op = 0
}

// sendObject is send_object_list of one object of n bytes.
func (s *Pipeline) sendObject(n int64) {
	p := s.p
	p.Phase = trace.Other
	p.Label("send_object_list")
	object := p.New(tensor.Contiguous(tensor.D(n)), tensor.Uint8)
	size := p.New(tensor.Contiguous(tensor.D(1)), tensor.Int64)
	sizes := p.New(tensor.Contiguous(tensor.D(1)), tensor.Int64)
	p.Drop(size, sizes, object)
	p.Op = 0
}

// forwardOne is forward_one_chunk, then the loss of the microbatch.
func (s *stage) forwardOne(i int, inputs []*op.Tensor, target *op.Tensor) {
	p := s.p
	args := append(s.received[i][:len(s.received[i]):len(s.received[i])], inputs...)
	out := s.call(args...)
	s.outputs = append(s.outputs, out)
	outputs := s.tensors(out)
	for _, t := range append(outputs, args...) {
		p.Keep(t)
	}
	s.forward[i] = pass{outputs, args}
	if !s.last() {
		return
	}
	loss := s.lower(func() python.Value {
		return p.CallFunction(s.aux, s.pl.Loss, []python.Value{p.Hold(out), p.Hold(python.Value{T: target})})
	})
	s.losses = append(s.losses, loss)
}

// backwardOne is backward_one_chunk. Gradients of what was received stay in the .grad of the
// buffers until the next step.
func (s *stage) backwardOne(i int) {
	p := s.p
	f := s.forward[i]
	delete(s.forward, i)
	s.left--
	sharded := stateOf(s.module)
	switch {
	case sharded != nil:
		sharded.beginMicrobatch()
	case s.reducer != nil && s.left == 0:
		s.reducer.expect()
	}
	if s.last() {
		p.Backward(s.losses[i].T, nil, false)
	} else {
		var roots, grads []*op.Tensor
		for k, t := range f.outputs {
			if autograd.Of(t).Requires {
				roots, grads = append(roots, t), append(grads, s.returned[i][k])
			}
		}
		if len(roots) == 0 {
			s.fail("no result of the stage requires a gradient")
		}
		p.RunBackward(roots, grads, false)
	}
	if sharded != nil && s.left == 0 {
		sharded.endMicrobatches()
	}
	for _, t := range s.received[i] {
		if autograd.Of(t).Grad == nil {
			s.fail("a tensor that the stage gets from the one before it has no gradient to send back, which PyTorch refuses")
		}
	}
	if s.last() {
		for _, t := range f.outputs {
			if !p.DetachInPlace(t) {
				s.fail("PyTorch refuses this: can't detach views in-place; the last stage of a pipeline returns a view, such as what view, transpose or Linear with a bias of an input of 3 dimensions give")
			}
		}
	}
	for _, t := range f.outputs {
		p.Drop(t)
	}
	for _, t := range f.inputs {
		p.Drop(t)
	}
}

// merge is merge_chunks: schedule.step returns the results of the batch, which go at once.
func (s *stage) merge() {
	p := s.p
	first := s.tensors(s.outputs[0])
	var merged []*op.Tensor
	for k := range first {
		var parts []*op.Tensor
		for _, o := range s.outputs {
			parts = append(parts, s.tensors(o)[k])
		}
		merged = append(merged, p.Do1(aten.Cat, &aten.DimArgs{}, parts...))
	}
	for i := len(merged) - 1; i >= 0; i-- {
		p.Drop(merged[i])
	}
}
