package oom

import (
	"os"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// TestTracebacks reads tracebacks of real runs of PyTorch 2.6.
func TestTracebacks(t *testing.T) {
	for name, want := range map[string]Place{
		"forward":   {Phase: "forward", Module: "layer3.*.conv1", Call: "conv2d"},
		"optimizer": {Phase: "optimizer", Call: "_foreach_sqrt"},
		"loss":      {Phase: "forward", Call: "cross_entropy_loss"},
		"backward":  {Phase: "backward", Call: "run_backward"},
		"head":      {Phase: "forward", Module: "lm_head", Call: "linear"},
		"gelu":      {Phase: "forward", Module: "**", Call: "gelu"},
		"size":      {Call: "empty"},
	} {
		b, err := os.ReadFile(needs.File(t, "oom", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		f := Parse(string(b))[0]
		if p := f.Place; p == nil || p.Phase != want.Phase || p.Module != want.Module || p.Call != want.Call {
			t.Errorf("%s: %+v, want %+v", name, p, want)
		}
	}
}

// TestPlaceOf reads tracebacks of wrappers, of a closure of an optimizer, of code of
// several lines, and logs in which there are two messages.
func TestPlaceOf(t *testing.T) {
	const (
		message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 74.00 MiB. GPU 0 has a total capacity of 6.00 GiB of which 60.00 MiB is free.\n"
		other   = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 6.00 GiB of which 10.00 MiB is free.\n"
		begin   = "Traceback (most recent call last):\n"
		module  = "  File \"/lib/torch/nn/modules/module.py\", line 1739, in _wrapped_call_impl\n    return self._call_impl(*args, **kwargs)\n"
	)
	frame := func(file, name, code string) string {
		return "  File \"" + file + "\", line 9, in " + name + "\n    " + code + "\n"
	}
	stem := frame("net.py", "forward", "x = self.stem(x)") + module + frame("/lib/torch/nn/modules/conv.py", "forward", "return F.conv2d(x)")
	model := begin + frame("train.py", "<module>", "loss = model(x)") + module
	backward := frame("/lib/torch/autograd/graph.py", "_engine_run_backward", "return Variable._execution_engine.run_backward(")
	for name, c := range map[string]struct {
		log  string
		last int // the message that is asked for
		want *Place
	}{
		"DistributedDataParallel": {model + frame("/lib/torch/nn/parallel/distributed.py", "forward", "return self.module(*inputs)") + module + stem + message, 0, &Place{Phase: "forward", Module: "stem", Call: "conv2d"}},
		"a closure": {begin + frame("train.py", "<module>", "optimizer.step(closure)") + frame("/lib/torch/optim/lbfgs.py", "step", "loss = closure()") +
			frame("train.py", "closure", "loss = model(x)") + module + stem + message, 0, &Place{Phase: "forward", Module: "stem", Call: "conv2d"}},
		"a closure's backward": {begin + frame("/lib/torch/optim/lbfgs.py", "step", "loss = closure()") + backward + message, 0, &Place{Phase: "backward", Call: "run_backward"}},
		"recomputed":           {begin + backward + frame("/lib/torch/utils/checkpoint.py", "recompute_fn", "fn(*args)") + stem + message, 0, &Place{Phase: "backward", Module: "**.stem", Call: "conv2d"}},
		"code of lines": {model + frame("net.py", "forward", "x = self.stem(\n        x,\n    )") + module +
			frame("/lib/torch/nn/functional.py", "gelu", "return torch._C._nn.gelu(\n        input,\n    )") + message, 0, &Place{Phase: "forward", Module: "stem", Call: "gelu"}},
		"marks of a later line": {model + frame("/lib/torch/nn/functional.py", "gelu", "return torch._C._nn.gelu(\n        x + y,\n        ~~^~~\n    )") + message, 0, &Place{Phase: "forward", Call: "gelu"}},
		"a closure's recomputation": {begin + frame("/lib/torch/optim/lbfgs.py", "step", "loss = closure()") + backward + frame("/lib/torch/utils/checkpoint.py", "recompute_fn", "fn(*args)") + stem + message, 0,
			&Place{Phase: "backward", Module: "**.stem", Call: "conv2d"}},
		"of the first message":   {model + stem + message + other, 1, nil},
		"logged and then raised": {message + model + stem + message, 0, &Place{Phase: "forward", Module: "stem", Call: "conv2d"}},
		"none":                   {"step 1\n" + message, 0, nil},
	} {
		p := Parse(c.log)[c.last].Place
		switch {
		case c.want == nil && p != nil || c.want != nil && p == nil:
			t.Errorf("%s: %+v, want %+v", name, p, c.want)
		case c.want != nil && (p.Phase != c.want.Phase || p.Module != c.want.Module || p.Call != c.want.Call):
			t.Errorf("%s: %+v, want %+v", name, p, c.want)
		}
	}
}

// TestCallee reads what a frame calls from its line, with the marks of Python 3.13,
// of 3.11, and without.
func TestCallee(t *testing.T) {
	for _, c := range []struct{ code, mark, want string }{
		{"    x = self.layer3(x)", "", "self.layer3"},
		{"    return F.conv2d(", "           ~~~~~~~~^", "F.conv2d"},
		{"    return x + self.down(gelu(self.up(x)))", "                         ~~~~^^^^^^^^^^^^", "gelu"},
		{"    return x + self.down(gelu(self.up(x)))", "                              ^^^^^^^^^^", "self.up"},
		{"    return F.linear(input, self.weight, self.bias)", "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^", "F.linear"},
		{"    scores = q @ k.transpose(-2, -1)", "             ~~^~~~~~~~~~~~~~~~~~~~~", "@"},
		{"    größe = höhe @ breite", "            ~~~~~^~~~~~~~", "@"}, // marks count letters
		{"    x = x + self.mlp(self.norm(x))", "", ""},
		{"    x, present = self.h[i](x, mask=None)", "", "self.h[i]"},
		{"    hidden, _ = self.attn(", "", "self.attn"},
		{"    loss.backward()", "    ~~~~~~~~~~~~~^^", "loss.backward"},
		{"", "", ""},
	} {
		f := frame{code: c.code, mark: c.mark}
		if got := f.callee(); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.code, c.mark, got, c.want)
		}
	}
}

// TestResolve finds modules of a plan by what tracebacks call them.
func TestResolve(t *testing.T) {
	modules := []string{"", "conv1", "layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1", "fc"}
	for _, c := range []struct{ pattern, want string }{
		{"conv1", "conv1"},
		{"layer1.*.conv1", "layer1.0.conv1 layer1.1.conv1"},
		{"**.conv1", "conv1 layer1.0.conv1 layer1.1.conv1 layer2.0.conv1"},
		{"net.layer2.*.conv1", "layer2.0.conv1"},
		{"base_model.model.fc", "fc"},
		{"layer4.*.conv1", ""},
		{"", ""},
	} {
		found := resolve(c.pattern, modules)
		var got []string
		for _, m := range modules {
			if found[m] && m != "" {
				got = append(got, m)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", c.pattern, s, c.want)
		}
	}
}
