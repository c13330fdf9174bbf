package distributed

import (
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// InferStages finds what each stage up to the last of the planned rank gets from the one before it: all
// run one after the other, without gradients, in p, which is not kept.
func InferStages(p *python.Interp, job *program.Job) {
	pl := job.Parallel.Pipeline
	p.Env().GradMode = false
	own := pl.Own()
	for k := range own[len(own)-1] {
		st, next := &pl.Stages[k], &pl.Stages[k+1]
		if next.Takes != nil {
			continue
		}
		s := &stage{Pipeline: &Pipeline{p: p, job: job, pl: pl}, index: k, module: p.Instantiate(st.Class, "")}
		p.ToDevice(s.module)
		var args []*op.Tensor
		for _, b := range st.Takes {
			args = append(args, p.LeafOf(trace.Inputs, b.DType, false, b.Layout))
		}
		for _, slot := range st.Inputs {
			in := job.InputOf(slot)
			size := append([]int64(nil), in.Size...)
			size[0] /= pl.Microbatches
			args = append(args, p.Leaf(trace.Inputs, in.DType, false, size...))
		}
		next.Takes = boundaries(s.tensors(s.call(args...)))
	}
}

// metaPickle is the length in bytes of a tuple of tensors on the meta device as pickle writes
// it, with protocol 4: each is a call of _rebuild_meta_tensor_no_storage with its type, size,
// stride and requires_grad (torch/_tensor.py: _reduce_ex_internal). What came before is referred to
// by its number.
func metaPickle(of []program.Boundary) int64 {
	const (
		frame    = 11 // protocol, and the length of the frame
		stop     = 1
		memo     = 1 // MEMOIZE, after each object
		op       = 1 // without an argument
		get      = 2 // BINGET and a number
		longName = 2 // SHORT_BINUNICODE and the length
	)
	name := func(s string) int64 { return int64(longName + len(s) + memo) }
	n := int64(frame + stop)
	made, types, modules := false, map[string]bool{}, false
	for _, b := range of {
		if made {
			n += get
		} else {
			made = true
			n += name("torch._utils") + name("_rebuild_meta_tensor_no_storage") + op + memo // STACK_GLOBAL
		}
		n += op // MARK, of four arguments
		switch dtype := pythonName(b.DType); {
		case types[dtype]:
			n += get
		default:
			types[dtype] = true
			if modules {
				n += get
			} else {
				modules = true
				n += name("torch")
			}
			n += name(dtype) + op + memo
		}
		n += tuple(b.Size) + tuple(b.Stride)
		n += op + op + memo + op + memo // False, TUPLE, REDUCE
	}
	switch {
	case len(of) > 3:
		n += 2 * op // MARK, TUPLE
	default:
		n += op
	}
	return n + memo
}

// tuple is the length of a tuple of integers.
func tuple(d tensor.Dims) int64 {
	n := int64(1)
	if d.Len() == 0 {
		return n // EMPTY_TUPLE, which is not memoized
	}
	if d.Len() > 3 {
		n++ // MARK
	}
	for i := range d.Len() {
		switch v := d.At(i); {
		case v < 1<<8:
			n += 2 // BININT1
		case v < 1<<16:
			n += 3 // BININT2
		case v < 1<<31:
			n += 5 // BININT
		default:
			n += 2 // LONG1 and its length
			for ; v > 0; v >>= 8 {
				n++
			}
		}
	}
	return n + 1
}

// pythonName is the name of a type in the module torch.
func pythonName(d tensor.DType) string { return program.Literal(d)[len("torch."):] }
