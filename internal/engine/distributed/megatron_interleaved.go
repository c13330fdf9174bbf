package distributed

import (
	"github.com/memplan/memplan/internal/op"
)

// interleaving is a step of forward_backward_pipelining_with_interleaving, with what its names
// mean.
type interleaving struct {
	*MegatronPipeline
	warmup, passes int
	microbatches   []int // of each forward pass

	output, input, outputGrad, inputGrad *op.Tensor // output_tensor, input_tensor, ...

	forwards, backwards      receiving
	sentNext, sentPrev       *op.Tensor   // send_next_wait_handle, send_prev_wait_handle, which refer to what is sent
	pendingPrev, pendingNext []*op.Tensor // recv_prev_wait_handles, recv_next_wait_handles
	waitedPrev, waitedNext   *op.Tensor   // recv_prev_wait_handle, recv_next_wait_handle
	reduced                  []bool       // synchronized_model_chunks
}

// receiving is fwd_recv_buffer or bwd_recv_buffer.
type receiving []*op.Tensor

// at is the place of a virtual microbatch.
func (r receiving) at(k int) **op.Tensor { return &r[k%len(r)] }

func (s *MegatronPipeline) interleaved() {
	size := s.Group - s.Ranks + 1
	ahead := func(leads bool) receiving {
		if leads {
			return make(receiving, size)
		}
		return make(receiving, 1)
	}
	_, microbatches := s.Order()
	x := &interleaving{MegatronPipeline: s, warmup: s.Warmup(), passes: len(s.order), microbatches: microbatches, forwards: ahead(s.First()), backwards: ahead(s.Last()), reduced: make([]bool, s.Chunks)}
	x.steps()
	s.Finalize()
	x.end()
}

// chunk is the model chunk of a virtual microbatch (get_model_chunk_id).
func (x *interleaving) chunk(k int, forward bool) int {
	c := x.order[k%x.passes]
	if !forward {
		c = x.Chunks - 1 - c
	}
	return c
}

// receives is recv_tensor_from_previous_stage: whether a tensor comes after a virtual
// microbatch, and for which chunk.
func (x *interleaving) receives(k int, forward bool) (recv bool, next int) {
	leads, last, by := x.First(), x.Chunks-1, 1
	if !forward {
		leads, last, by = x.Last(), 0, -1
	}
	if !leads {
		return true, x.chunk(k+1, forward)
	}
	recv = true
	if k < x.Ranks-1 {
		recv, next = false, x.chunk(k+1, forward)
	} else {
		next = x.chunk(k-(x.Ranks-1), forward)
	}
	return recv && next != last, next + by
}

// forwardStep is forward_step_helper.
func (x *interleaving) forwardStep(k int) *op.Tensor {
	c := x.chunk(k, true)
	ch := x.chunks[c]
	if x.FirstChunk(c) && len(ch.inputs) == len(ch.outputs) {
		ch.inputs = append(ch.inputs, nil)
	}
	out, tokens := x.forward(c, x.keep(ch.inputs[len(ch.outputs)]))
	ch.outputs = append(ch.outputs, x.keep(out))
	x.p.Drop(ch.inputs[len(ch.outputs)-1], tokens)
	return out
}

// backwardStep is backward_step_helper.
func (x *interleaving) backwardStep(k int) *op.Tensor {
	c := x.chunk(k, false)
	ch := x.chunks[c]
	if x.LastChunk(c) && len(ch.grads) == 0 {
		ch.grads = append(ch.grads, nil)
	}
	input, output, grad := pop(&ch.inputs), pop(&ch.outputs), pop(&ch.grads)
	x.p.Drop(x.backward(c, x.keep(output), grad))
	got := x.gradient(input)
	if of := k - x.Rank; x.Reduces && of >= 0 && x.microbatches[of] == x.Microbatches-1 {
		x.reduce(x.chunk(of, false))
	}
	x.p.Drop(input, output, grad)
	return got
}

// reduce is grad_sync_func of a chunk.
func (x *interleaving) reduce(chunk int) {
	x.Reduce(chunk)
	x.reduced[chunk] = true
}

// sendsOutput and sendsGrad leave out what no stage takes.
func (x *interleaving) sendsOutput(k int, t *op.Tensor) *op.Tensor {
	if x.LastChunk(x.chunk(k, true)) {
		x.p.Drop(t)
		return nil
	}
	return t
}

func (x *interleaving) sendsGrad(k int, t *op.Tensor) *op.Tensor {
	if x.FirstChunk(x.chunk(k, false)) {
		x.p.Drop(t)
		return nil
	}
	return t
}

// sendForward is send_forward_recv_forward with overlap_p2p_comm: what comes is pending.
func (x *interleaving) sendForward(into **op.Tensor, sent *op.Tensor, recv bool) {
	t := x.recvForward(recv)
	x.set(into, t)
	x.set(&x.sentNext, x.keep(sent))
	if recv {
		x.pendingPrev = append(x.pendingPrev, x.keep(t))
	}
}

// sendBackward is send_backward_recv_backward with overlap_p2p_comm.
func (x *interleaving) sendBackward(into **op.Tensor, sent *op.Tensor, recv bool) {
	t := x.recvBackward(recv)
	x.set(into, t)
	x.set(&x.sentPrev, x.keep(sent))
	if recv {
		x.pendingNext = append(x.pendingNext, x.keep(t))
	}
}

// waitInside takes a pending handle in a function inside, whose name goes at its end.
func (x *interleaving) waitInside(pending *[]*op.Tensor) {
	if len(*pending) > 0 {
		x.p.Drop(pop(pending))
	}
}

// wait takes a pending handle.
func (x *interleaving) wait(pending *[]*op.Tensor, handle **op.Tensor) {
	if len(*pending) > 0 {
		x.set(handle, pop(pending))
	}
}

func (x *interleaving) steps() {
	ch := x.chunks
	ch[0].inputs = append(ch[0].inputs, x.recvForward(!x.First()))
	if x.First() {
		ch[0].inputs = ch[0].inputs[:0]
		ch[0].inputs = append(ch[0].inputs, nil)
	}
	x.warmUp()
	for k := range x.passes - x.warmup {
		if x.Overlap {
			x.overlapped(k)
		} else {
			x.waiting(k)
		}
	}
	x.deallocate(x.output)
	x.coolDown()
}

// warmUp are the forward passes before the first backward pass.
func (x *interleaving) warmUp() {
	steady := x.warmup < x.passes
	for k := range x.warmup {
		first := x.FirstChunk(x.chunk(k, true))
		if x.Flush && !first && k != 0 {
			x.wait(&x.pendingPrev, &x.waitedPrev)
		}
		recv, next := x.receives(k, true)
		recv = recv && k != x.passes-1
		if x.Flush && !x.First() {
			x.sendForward(x.forwards.at(k), nil, recv)
		}
		x.set(&x.output, x.sendsOutput(k, x.forwardStep(k)))
		last := k == x.warmup-1 && steady
		switch {
		case !x.Flush && last && !x.Overlap:
			x.set(&x.input, x.recvForward(recv))
			x.set(&x.outputGrad, x.recvBackward(!x.Last()))
			c := x.chunks[x.Chunks-1]
			c.grads = append(c.grads, x.keep(x.outputGrad))
		case !x.Flush:
			x.set(&x.input, x.recvForward(recv))
		case x.First():
			x.sendForward(x.forwards.at(k), x.output, recv)
		default:
			x.set(&x.sentNext, x.keep(x.output))
		}
		if !x.Flush {
			if recv {
				x.chunks[next].inputs = append(x.chunks[next].inputs, x.keep(x.input))
			}
			x.deallocate(x.output)
		} else {
			x.deallocate(x.output)
			if recv {
				x.taken(&x.chunks[next].inputs, x.forwards, k)
			}
		}
		if x.Overlap && last {
			end := &x.backwards[len(x.backwards)-1]
			x.sendBackward(end, nil, !x.Last())
			if !x.Last() {
				c := x.chunks[x.Chunks-1]
				c.grads = append(c.grads, x.keep(*end))
			}
		}
	}
}

// taken moves what a buffer got after a virtual microbatch to where it is taken from.
func (x *interleaving) taken(list *[]*op.Tensor, from receiving, k int) {
	*list = append(*list, x.keep(*from.at(k)))
	x.set(from.at(k+1), nil)
}

// overlapped is a forward and a backward pass of the steady state with overlap_p2p_comm.
func (x *interleaving) overlapped(k int) {
	forward := k + x.warmup
	steady := x.passes - x.warmup
	if !x.FirstChunk(x.chunk(forward, true)) {
		x.waitInside(&x.pendingPrev)
	}
	x.deallocate(x.output)
	output := x.sendsOutput(forward, x.forwardStep(forward))
	recv, next := x.receives(forward, true)
	recv = recv && k != steady-1
	x.sendForward(x.forwards.at(forward), output, recv)
	if recv {
		x.taken(&x.chunks[next].inputs, x.forwards, forward)
	}
	if !x.LastChunk(x.chunk(k, false)) {
		x.waitInside(&x.pendingNext)
	}
	grad := x.sendsGrad(k, x.backwardStep(k))
	recv, next = x.receives(k, false)
	x.sendBackward(x.backwards.at(k), grad, recv)
	if recv {
		x.taken(&x.chunks[next].grads, x.backwards, k)
	}
	x.set(&x.output, output)
	x.set(&x.inputGrad, grad)
}

// waiting is the same without overlap_p2p_comm.
func (x *interleaving) waiting(k int) {
	forward := k + x.warmup
	output := x.forwardStep(forward)
	grad := x.backwardStep(k)
	x.set(&x.output, output)
	x.set(&x.inputGrad, grad)
	x.output, x.inputGrad = x.sendsOutput(forward, x.output), x.sendsGrad(k, x.inputGrad)
	recvPrev, nextForward := x.receives(forward, true)
	recvNext, nextBackward := x.receives(k, false)
	recvPrev = recvPrev && k != x.passes-x.warmup-1
	input, outputGrad := x.recvForward(recvPrev), x.recvBackward(recvNext)
	x.set(&x.input, input)
	x.set(&x.outputGrad, outputGrad)
	x.deallocate(x.output)
	if recvPrev {
		x.chunks[nextForward].inputs = append(x.chunks[nextForward].inputs, x.keep(input))
	}
	if recvNext {
		x.chunks[nextBackward].grads = append(x.chunks[nextBackward].grads, x.keep(outputGrad))
	}
}

// coolDown are the backward passes after the last forward pass.
func (x *interleaving) coolDown() {
	steady := x.passes - x.warmup
	if steady == 0 {
		c := x.chunks[x.Chunks-1]
		if x.Last() {
			c.grads = append(c.grads, nil)
		} else {
			c.grads = append(c.grads, x.recvBackward(true))
		}
	}
	for k := steady; k < x.passes; k++ {
		if !x.LastChunk(x.chunk(k, false)) && k != 0 {
			x.wait(&x.pendingNext, &x.waitedNext)
		}
		recv, next := x.receives(k, false)
		recv = recv && k != x.passes-1
		if x.Flush && !x.Last() {
			x.sendBackward(x.backwards.at(k), nil, recv)
		}
		x.set(&x.inputGrad, x.backwardStep(k))
		x.inputGrad = x.sendsGrad(k, x.inputGrad)
		switch {
		case !x.Flush:
			x.set(&x.outputGrad, x.recvBackward(recv))
			if recv {
				x.chunks[next].grads = append(x.chunks[next].grads, x.keep(x.outputGrad))
			}
			continue
		case x.Last():
			x.sendBackward(x.backwards.at(k), x.inputGrad, recv)
		default:
			x.set(&x.sentPrev, x.keep(x.inputGrad))
		}
		if recv {
			x.taken(&x.chunks[next].grads, x.backwards, k)
		}
	}
	if x.Reduces {
		for c, done := range x.reduced {
			if !done {
				x.reduce(c)
			}
		}
	}
}

// end is the end of the function.
func (x *interleaving) end() {
	p := x.p
	p.Drop(x.input, x.inputGrad, x.sentNext, x.sentPrev, x.waitedPrev, x.waitedNext, x.outputGrad, x.output)
	p.Drop(x.forwards...)
	p.Drop(x.backwards...)
	p.Drop(x.total)
}
