package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// MegatronPipeline is the schedule of a pipeline-parallel process of Megatron-core with the
// model chunks that it has (megatron/core/pipeline_parallel/schedules.py and
// p2p_communication.py of release 0.15). What others send lies in tensors that are made when
// it is received.
type MegatronPipeline struct {
	p *python.Interp
	*program.MegatronPipeline
	root, aux *python.Module
	chunks    []*megatronChunk
	order     []int // the chunk of each forward pass

	// NextBatch copies a batch to the device. Began is called in each step before its first
	// backward pass, Passed after each, with the chunk. Reduce is start_grad_sync of a chunk,
	// and Finalize finalize_model_grads.
	NextBatch      func() []*op.Tensor
	Began          func()
	Passed, Reduce func(chunk int)
	Finalize       func()
	began          bool

	losses []python.Value // forward_data_store
	total  *op.Tensor     // total_num_tokens
}

// megatronChunk is a chunk with the microbatches that are under way.
type megatronChunk struct {
	module  *python.Module
	input   *op.Tensor   // decoder.input_tensor: that of the last forward pass
	inputs  []*op.Tensor // input_tensors; nil: there is none
	outputs []*op.Tensor // output_tensors
	grads   []*op.Tensor // output_tensor_grads
}

// NewMegatronPipeline makes the schedule of the chunks that root has.
func NewMegatronPipeline(p *python.Interp, pl *program.MegatronPipeline, root, aux *python.Module) *MegatronPipeline {
	s := &MegatronPipeline{p: p, MegatronPipeline: pl, root: root, aux: aux}
	for _, m := range root.Children {
		s.chunks = append(s.chunks, &megatronChunk{module: m})
	}
	s.order, _ = pl.Order()
	return s
}

// Step is forward_backward_func. It returns what was reported of the losses.
func (s *MegatronPipeline) Step() []python.Value {
	s.p.Phase, s.began = trace.Forward, false
	s.p.Label("total_num_tokens")
	s.total = s.p.New(tensor.Layout{}, tensor.Int32)
	s.p.Op = 0
	if s.Chunks > 1 {
		s.interleaved()
	} else {
		s.oneFOneB()
	}
	losses := s.losses
	s.losses = nil
	return losses
}

// keep is another reference to a tensor, or to none.
func (s *MegatronPipeline) keep(t *op.Tensor) *op.Tensor {
	if t != nil {
		s.p.Keep(t)
	}
	return t
}

// set binds a name again, which gives up what it meant.
func (s *MegatronPipeline) set(name **op.Tensor, t *op.Tensor) {
	s.p.Drop(*name)
	*name = t
}

// communicate makes the tensor that another stage sends; nil: none is sent.
func (s *MegatronPipeline) communicate(label string, c trace.Category, recv bool) *op.Tensor {
	if !recv {
		return nil
	}
	p := s.p
	phase := p.Phase
	p.Phase = trace.Other
	p.Label(label)
	t := p.LeafOf(c, s.Sent.DType, true, s.Sent.Layout)
	p.Op = 0
	p.Phase = phase
	return t
}

func (s *MegatronPipeline) recvForward(recv bool) *op.Tensor {
	return s.communicate("recv_forward", trace.Activations, recv)
}

func (s *MegatronPipeline) recvBackward(recv bool) *op.Tensor {
	return s.communicate("recv_backward", trace.Gradients, recv)
}

// buffer is a buffer of the model; nil: it has none of that name.
func (s *MegatronPipeline) buffer(name string) *op.Tensor {
	i := slices.IndexFunc(s.root.Class.Buffers, func(b program.Param) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return s.root.Buffers[i].T
}

// deallocate is deallocate_output_tensor: of a tensor that was sent no more than grad_fn is
// needed.
func (s *MegatronPipeline) deallocate(t *op.Tensor) {
	if t == nil {
		return
	}
	one := s.p.New(tensor.Contiguous(tensor.D(1)), t.DType)
	s.p.SetData(t, one, one.Layout)
	s.p.Drop(one)
}

// forward is forward_step of a microbatch; input is what the stage before sent. It returns the
// chunk's result, or the loss and how many tokens it is of.
func (s *MegatronPipeline) forward(k int, input *op.Tensor) (loss, tokens *op.Tensor) {
	p, c := s.p, s.chunks[k]
	s.set(&c.input, s.keep(input)) // set_input_tensor
	var batch []*op.Tensor
	if s.FirstChunk(k) || s.LastChunk(k) {
		p.Phase = trace.Input
		batch = s.NextBatch()
	}
	p.Phase = trace.Forward
	args := []python.Value{{T: s.keep(input)}}
	for _, i := range s.Inputs {
		var t *op.Tensor
		if i >= 0 && batch != nil {
			t = batch[i]
		}
		args = append(args, python.Value{T: s.keep(t)})
	}
	if mask := &args[1+s.Mask]; mask.T == nil { // get_default_causal_mask
		mask.T = s.keep(s.buffer("causal_mask"))
	}
	args = append(args, python.Value{T: s.keep(s.buffer("mpu"))})
	out := p.CallModule(c.module, nil, args).T
	for i, t := range batch {
		if i != s.LossMask {
			p.Drop(t)
		}
	}
	var mask *op.Tensor
	if batch != nil {
		mask = batch[s.LossMask]
	}
	if !s.LastChunk(k) {
		s.scaleAuxiliary(out)
		p.Drop(mask)
		return out, nil
	}
	results := p.CallFunction(s.aux, s.Loss, []python.Value{{T: mask}, {T: out}})
	items := results.List.Items
	s.losses = append(s.losses, p.Hold(items[2]))
	loss, tokens = p.Keep(items[0].T), p.Keep(items[1].T)
	p.LetGo(results)
	s.scaleAuxiliary(loss)
	return loss, tokens
}

// scaleAuxiliary scales auxiliary losses of experts, after each forward pass of a chunk.
func (s *MegatronPipeline) scaleAuxiliary(output *op.Tensor) {
	if s.Auxiliary != nil {
		s.p.LetGo(s.p.CallFunction(s.aux, s.Auxiliary, []python.Value{{T: s.keep(output)}}))
	}
}

// backward is the backward pass of backward_step, from grad or, if that is nil, from the loss
// that output is. It takes over output and returns it, or the scaled loss in its place.
func (s *MegatronPipeline) backward(k int, output, grad *op.Tensor) *op.Tensor {
	p := s.p
	if !s.began {
		s.began = true
		s.Began()
	}
	p.Phase = trace.Backward
	if grad == nil {
		output = p.CallFunction(s.aux, s.Scale, []python.Value{{T: output}}).T
		p.Backward(output, nil, false)
	} else {
		p.RunBackward([]*op.Tensor{output}, []*op.Tensor{grad}, false)
	}
	s.Passed(k)
	p.Phase = trace.Forward
	return output
}

// gradient is the gradient of what the stage before sent.
func (s *MegatronPipeline) gradient(input *op.Tensor) *op.Tensor {
	if input == nil {
		return nil
	}
	g := autograd.Of(input).Grad
	if g == nil {
		s.p.Fail("a tensor that the stage gets from the one before it has no gradient to send back")
	}
	return s.p.Keep(&g.Tensor)
}

// pop takes the first tensor of a list.
func pop(list *[]*op.Tensor) *op.Tensor {
	t := (*list)[0]
	*list = (*list)[1:]
	return t
}

// oneFOneB is forward_backward_pipelining_without_interleaving.
func (s *MegatronPipeline) oneFOneB() {
	p, c := s.p, s.chunks[0]
	var input, output, tokens, grad, inputGrad *op.Tensor
	forward := func() {
		out, n := s.forward(0, input)
		s.set(&output, out)
		s.set(&tokens, n)
	}
	push := func() {
		c.inputs, c.outputs = append(c.inputs, s.keep(input)), append(c.outputs, s.keep(output))
		s.deallocate(output)
	}
	backward := func() {
		output = s.backward(0, output, grad)
		s.set(&inputGrad, s.gradient(input))
	}
	warmup := s.Warmup()
	for range warmup {
		s.set(&input, s.recvForward(!s.First()))
		forward()
		push()
	}
	steady := s.Microbatches - warmup
	if steady > 0 {
		s.set(&input, s.recvForward(!s.First()))
	}
	for i := range steady {
		forward()
		s.set(&grad, s.recvBackward(!s.Last()))
		push()
		s.set(&input, pop(&c.inputs))
		s.set(&output, pop(&c.outputs))
		backward()
		s.set(&input, s.recvForward(!s.First() && i < steady-1))
	}
	for range warmup {
		s.set(&input, pop(&c.inputs))
		s.set(&output, pop(&c.outputs))
		s.set(&grad, s.recvBackward(!s.Last()))
		backward()
	}
	s.Finalize()
	p.Drop(s.total, input, output, tokens, grad, inputGrad)
}
