package oom

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		b, err := os.ReadFile(filepath.Join("../../testdata/oom", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		f := Parse(string(b))[0]
		if p := f.Place; p == nil || p.Phase != want.Phase || p.Module != want.Module || p.Call != want.Call {
			t.Errorf("%s: %+v, want %+v", name, p, want)
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
