package oom

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// Plan is what a prediction says of the job that failed.
type Plan struct {
	Device        string       // name of the GPU
	Total         tensor.Bytes // of the device
	Context       tensor.Bytes
	PeakAllocated tensor.Bytes // without a limit
	PeakReserved  tensor.Bytes
	Fits          bool
	Dies          Request      // the first that fails, if any
	Held          tensor.Bytes // in tensors when it fails
	NotModelled   []string
	Requests      []Request // all that the plan makes, each at its first place
	Microbatches  int64     // of a step
	// Operators tells those that may run where a traceback calls a function; nil if it
	// does not know.
	Operators func(call string) []string
}

// Request is one for memory, in a size as messages name it.
type Request struct {
	Bytes            tensor.Bytes
	Step             int
	Phase, Op, Layer string
}

// near is how far two figures may be apart and still be the same: messages are
// rounded to 0.01 of their unit.
func near(a, b tensor.Bytes) bool {
	d := a - b
	return d <= b/100 && -d <= b/100
}

// Compare names where a message and a plan part, in the order in which one
// would check.
func Compare(f *Failure, p *Plan) []string {
	var out []string
	at := p.meant(f.Place)
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if f.Total >= 0 && !near(f.Total, p.Total) {
		say("the job ran on a GPU of %v, the plan is for %s with %v: set device in the spec", f.Total, p.Device, p.Total)
	}
	switch {
	case f.Tried < 0:
		say("the message has no figures to compare with the plan's peak of %v allocated, %v reserved", p.PeakAllocated, p.PeakReserved)
		return out
	case !p.Fits && near(f.Tried, p.Dies.Bytes):
		out = append(out, p.sameSize(f, at)...)
	case !p.Fits:
		say("the plan runs out of memory too, but at a request of %v in %s, not at the %v of the message", p.Dies.Bytes, p.Dies.where(), f.Tried)
		if f.Allocated >= 0 && p.requests(f.Tried) {
			say("the request agrees: the plan makes one of %v too; the rest does not: %v in other tensors, %v in the plan (a mask, a buffer, a tensor that is kept?)", f.Tried, f.Allocated, p.Held)
		}
	}
	if p.requests(f.Tried) {
		out = append(out, p.elsewhere(f, at)...)
	} else {
		say("the plan makes no request of %v: the job does something that the spec does not say, or in other sizes (batch, sequence length, precision)", f.Tried)
	}
	switch {
	case f.Total >= 0 && p.Fits && p.PeakReserved+p.Context > f.Total:
		say("the plan's peak of %v reserved is too much for the job's GPU, as it was for the job", p.PeakReserved)
	case f.Allocated >= 0 && p.Fits:
		switch over := f.Allocated + f.Tried - p.PeakAllocated; {
		case over > p.PeakAllocated/50:
			say("with this request the job would hold %v in tensors, %v more than the plan's peak of %v", f.Allocated+f.Tried, over, p.PeakAllocated)
			if f.Progress >= growing {
				say("as it had run about %d steps, look for tensors that are kept from step to step", f.Progress)
			}
		default:
			say("the job had no more in tensors (%v) than the plan at its peak (%v): the missing memory is not in tensors", f.Allocated, p.PeakAllocated)
		}
	}
	if f.Reserved >= 0 && f.Allocated >= 0 && f.Reserved-f.Allocated > p.PeakReserved-p.PeakAllocated+p.PeakReserved/20 {
		say("%v are reserved and not allocated, the plan has %v at its peaks: more fragmentation than planned, as from sizes that vary", f.Reserved-f.Allocated, p.PeakReserved-p.PeakAllocated)
	}
	if f.InUse >= 0 && f.Reserved >= 0 && f.InUse-f.Reserved > p.Context+p.Context/2 {
		say("the process holds %v outside PyTorch's allocator; the prediction has a context of %v", f.InUse-f.Reserved, p.Context)
	}
	if others := f.others(); others > f.Total/50 {
		say("other processes hold %v, which the plan does not count (device.other_processes)", others)
	}
	for _, n := range p.NotModelled {
		say("not in the plan: %s", n)
	}
	return out
}

// requests reports whether the plan asks for that many bytes somewhere.
func (p *Plan) requests(b tensor.Bytes) bool {
	for _, r := range p.Requests {
		if near(b, r.Bytes) {
			return true
		}
	}
	return false
}
