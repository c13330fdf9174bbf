package oom

import (
	"strings"
	"testing"
)

// TestCompare holds a message against plans: of the same job, of the job on a
// larger GPU, and of one that is smaller.
func TestCompare(t *testing.T) {
	const log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.93 GiB. GPU 0 has a total capacity of 23.56 GiB of which 2.77 GiB is free. Of the allocated memory 20.46 GiB is allocated by PyTorch, and 22.34 MiB is reserved by PyTorch but unallocated."
	plan := Plan{
		Device: "rtx-3090", Total: g(23.56), Context: m(320), PeakAllocated: g(27.33), PeakReserved: g(29.27),
		Dies: Request{Bytes: g(2.93), Step: 1, Phase: "backward"}, Requests: []Request{{Bytes: m(2)}, {Bytes: g(2.93)}},
	}
	for _, c := range []struct {
		name   string
		change func(p *Plan)
		want   []string // beginnings
	}{
		{"the same", func(*Plan) {}, []string{"the size agrees, as the plan fails for 2.93 GiB, too, in step 1, backward; the log has no traceback that would tell whether it is the same request"}},
		{"a mask is missing", func(p *Plan) { p.Dies.Bytes, p.Held = g(1.25), g(20.1) }, []string{
			"the plan runs out of memory too, but at a request of 1.25 GiB in step 1, backward, not at the 2.93 GiB of the message",
			"the request agrees: the plan makes one of 2.93 GiB too; the rest does not: 20.46 GiB in other tensors, 20.10 GiB in the plan",
		}},
		{"a larger GPU", func(p *Plan) { p.Device, p.Total, p.Fits = "a100-40gb", g(39.49), true }, []string{
			"the job ran on a GPU of 23.56 GiB, the plan is for a100-40gb with 39.49 GiB",
			"the plan's peak of 29.27 GiB reserved is too much for the job's GPU",
		}},
		{"a smaller batch", func(p *Plan) {
			p.Fits, p.PeakAllocated, p.PeakReserved, p.Requests = true, g(18.73), g(19.71), []Request{{Bytes: m(2)}, {Bytes: g(1.95)}}
		}, []string{
			"the plan makes no request of 2.93 GiB",
			"with this request the job would hold 23.39 GiB in tensors, 4.66 GiB more than the plan's peak of 18.73 GiB",
		}},
		{"it fits beside", func(p *Plan) { p.Fits, p.PeakAllocated, p.PeakReserved = true, g(23), g(23.1) }, []string{
			"the job had no more in tensors (20.46 GiB) than the plan at its peak (23.00 GiB)",
		}},
	} {
		p := plan
		c.change(&p)
		got := Compare(Parse(log)[0], &p)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", c.name, got)
			continue
		}
		for i, w := range c.want {
			if !strings.HasPrefix(got[i], w) {
				t.Errorf("%s: %q, want %q", c.name, got[i], w)
			}
		}
	}
}
