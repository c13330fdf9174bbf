package oom

import (
	"slices"
	"strings"
	"testing"
)

// TestPlaces holds logs whose request has the size of the plan's against plans that
// die in one place or another.
func TestPlaces(t *testing.T) {
	const (
		message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 74.00 MiB. GPU 0 has a total capacity of 6.00 GiB of which 60.00 MiB is free.\n"
		begin   = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    loss = model(x)\n"
		module  = "  File \"/lib/torch/nn/modules/module.py\", line 1739, in _wrapped_call_impl\n    return self._call_impl(*args, **kwargs)\n"
		forward = begin + module + "  File \"net.py\", line 5, in forward\n    x = self.stem(x)\n" + module +
			"  File \"/lib/torch/nn/modules/container.py\", line 250, in forward\n    input = module(input)\n" + module +
			"  File \"/lib/torch/nn/modules/conv.py\", line 549, in _conv_forward\n    return F.conv2d(\n"
		backward = "Traceback (most recent call last):\n  File \"train.py\", line 10, in <module>\n    loss.backward()\n" +
			"  File \"/lib/torch/autograd/graph.py\", line 823, in _engine_run_backward\n    return Variable._execution_engine.run_backward(\n"
	)
	here := Request{m(74), 1, "forward", "convolution", "stem.0"}
	change := func(f func(r *Request)) Request {
		r := here
		f(&r)
		return r
	}
	for _, c := range []struct {
		name, log string
		dies      Request
		want      []string // parts of what is said, in order
	}{
		{"the same", forward, here, []string{"as planned: the plan fails at the same request, 74.00 MiB in step 1, forward, convolution in stem.0; the traceback agrees in phase, module and operator"}},
		{"another module", forward, change(func(r *Request) { r.Layer = "head.0" }), []string{
			"the size agrees, as the plan fails for 74.00 MiB, too, in step 1, forward, convolution in head.0; the place does not:",
			"module: stem.* in the traceback, head.0 in the plan", "the plan makes the request of the traceback (forward, conv2d in stem.*), too: 74.00 MiB in step 1, forward, convolution in stem.0"}},
		{"a module that the plan has not", strings.ReplaceAll(forward, "self.stem", "self.trunk.first"), change(func(r *Request) { r.Layer = "head" }), []string{
			"as planned: the plan fails at the same request, 74.00 MiB in step 1, forward, convolution in head; the traceback agrees in phase and operator, and tells no module of the plan"}},
		{"another operator", forward, change(func(r *Request) { r.Op = "cat" }), []string{"the place does not:", "operator: conv2d in the traceback, cat in the plan", "too: 74.00 MiB in step 1, forward, convolution in stem.0"}},
		{"a conversion of its input", forward, change(func(r *Request) { r.Op = "_to_copy" }), []string{"as planned: "}},
		{"another phase", backward, here, []string{"the place does not:", "phase: backward in the traceback, forward in the plan", "the plan asks for nothing where the traceback ends (backward)"}},
		{"backward", backward, change(func(r *Request) { r.Phase, r.Op = "backward", "ConvolutionBackward0" }), []string{"as planned: the plan fails at the same request, 74.00 MiB in step 1, backward, ConvolutionBackward0 in stem.0; the traceback agrees in phase, and tells no module or operator"}},
		{"another step", "step 3\nstep 4\n" + forward, here, []string{"the place does not:", "step: the log shows step 4 before, the plan fails in step 1"}},
		{"a step that the log does not reach", "step 1\nstep 2\n" + forward, change(func(r *Request) { r.Step = 9 }), []string{"the place does not:", "step: the log ends at step 2, the plan fails in step 9"}},
		{"a step of the log", "step 0\nstep 1\n" + forward, change(func(r *Request) { r.Step = 3 }), []string{"as planned: "}},
		{"steps between others", "step 2\nstep 12\nstep 14\n" + forward, change(func(r *Request) { r.Step = 18 }), []string{"the place does not:", "step: the log ends at step 14, the plan fails in step 18"}},
		{"microbatches", "batch 5\n" + forward, here, []string{"as planned: "}},
		{"eval", forward, change(func(r *Request) { r.Phase = "eval" }), []string{"as planned: "}},
		{"the same place, another size", forward, change(func(r *Request) { r.Bytes = m(20) }), []string{
			"the plan runs out of memory too, but at a request of 20.00 MiB in step 1, forward, convolution in stem.0, not at the 74.00 MiB of the message",
			"the plan makes the request of the traceback (forward, conv2d in stem.*), too: 74.00 MiB in step 1, forward, convolution in stem.0"}},
		{"no step", forward, change(func(r *Request) { r.Step = 2 }), []string{"the traceback agrees in phase, module and operator, and tells no step"}},
		{"no traceback", "", here, []string{"the log has no traceback that would tell whether it is the same request"}},
		{"ranks", "[rank1]: " + strings.ReplaceAll(strings.TrimSuffix(forward, "\n"), "\n", "\n[rank0]: other\n[rank1]: ") + "\n[rank1]: ", here, []string{"as planned: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Plan{
				Device: "x", Total: g(6), PeakAllocated: g(7), PeakReserved: g(7), Dies: c.dies,
				Requests:  []Request{here, {m(20), 1, "optimizer", "Optimizer.step", ""}, {m(74), 1, "forward", "cat", "head.0"}},
				Operators: func(call string) []string { return map[string][]string{"conv2d": {"convolution"}}[call] },
			}
			if c.name == "microbatches" {
				p.Microbatches = 5
			}
			if c.dies.Phase == "backward" {
				p.Requests = append(p.Requests, c.dies)
			}
			f := Parse(c.log + message)[0]
			got := Compare(f, &p)
			planned := strings.HasPrefix(c.want[0], "as planned") || strings.HasPrefix(c.want[0], "the traceback agrees")
			if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "as planned") }) != planned {
				t.Errorf("%q", got)
			}
			if len(got) < len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, w := range c.want {
				if !strings.Contains(got[i], w) {
					t.Errorf("%q, want %q", got[i], w)
				}
			}
		})
	}
}
