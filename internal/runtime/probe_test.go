package runtime

import (
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// job elaborates a preset with settings.
func job(t *testing.T, preset string, set ...string) *estimate.Job {
	t.Helper()
	text, err := specs.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(preset+".yaml", text, spec.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	j, err := estimate.NewJob(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestProbe checks what the inputs of jobs are bounded by.
func TestProbe(t *testing.T) {
	for _, c := range []struct {
		preset string
		set    []string
		bounds map[string]int64
	}{
		{"mlp", nil, map[string]int64{"y": 10}},
		{"lenet", nil, map[string]int64{"y": 10}},
		{"vit", nil, map[string]int64{"y": 1000}},
		{"gpt", nil, map[string]int64{"ids": 50257, "y": 50257}},
		{"gpt", []string{"params.manual=true"}, map[string]int64{"ids": 50257, "y": 50257}},
		{"bert", nil, map[string]int64{"ids": 30522, "y": 2}},
		{"llama", nil, map[string]int64{"ids": 32000, "y": 32000}},
	} {
		j := job(t, c.preset, c.set...)
		u, err := Probe(j.Program, j.Machine.Env, &cpu.Device{})
		if err != nil {
			t.Errorf("%s: %v", c.preset, err)
			continue
		}
		for name, n := range c.bounds {
			if u.Bounds[name] != n {
				t.Errorf("%s: %s is bounded by %d, not %d", c.preset, name, n, u.Bounds[name])
			}
		}
	}
}

// TestProbeInPlace checks that the in-place form of an operator bounds its indices as the
// operator does.
func TestProbeInPlace(t *testing.T) {
	for _, inplace := range []string{"", ", inplace: true"} {
		s, err := spec.Parse("job.yaml", []byte(`memplan: 1
model:
  inputs: {x: {shape: [4, 6]}, i: {shape: [4], dtype: int64}, y: {shape: [4, 6]}}
  layers:
    - {Linear: 6, name: h}
    - {Linear: 6, inputs: x, name: k}
    - {index_add: {input: h, dim: 1, index: {getitem: "0", inputs: i}, source: k}`+inplace+`}
  loss: {mse_loss: {target: y}}
train: {batch_size: 3, optimizer: SGD}
`), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := estimate.NewJob(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := Probe(j.Program, j.Machine.Env, &cpu.Device{})
		if err != nil {
			t.Fatal(err)
		}
		if u.Bounds["i"] != 4 {
			t.Errorf("index_add%s: indices are bounded by %d, not 4", inplace, u.Bounds["i"])
		}
	}
}

// away is the CPU as a device whose memory is not the host's: where there are kernels, they
// compute.
type away struct{ *cpu.Device }

func (away) OnHost() bool { return false }

// holdHost holds that kernels compute all of a preset.
func holdHost(t *testing.T, preset string, u Uses) {
	t.Helper()
	if len(u.HostOperators) > 0 {
		t.Errorf("%s: computed in host memory are %q", preset, u.HostOperators)
	}
}

// TestExecutable checks that all presets can be executed, and that nothing of them is computed in
// host memory if that is not the device's.
func TestExecutable(t *testing.T) {
	for _, preset := range specs.Names() {
		j := job(t, preset)
		u, err := Probe(j.Program, j.Machine.Env, away{&cpu.Device{}})
		if err != nil {
			t.Errorf("%s: %v", preset, err)
		}
		holdHost(t, preset, u)
	}
}

// TestExecutableHF checks that of the presets of transformers those that need no configuration.
func TestExecutableHF(t *testing.T) {
	needs.Time(t, "builds a hundred models, and shares nothing between goroutines")
	tried := 0
	for _, m := range specs.HFTypes() {
		j, err := (&estimate.Recipe{Path: m, Text: []byte("memplan: 1\nmodel: {preset: hf/" + m + "}\n")}).Job()
		if err != nil {
			continue
		}
		u, err := Probe(j.Program, j.Machine.Env, away{&cpu.Device{}})
		if err != nil {
			t.Errorf("%s: %v", m, err)
		}
		holdHost(t, "hf/"+m, u)
		tried++
	}
	if t.Logf("%d models", tried); tried < 95 {
		t.Errorf("of %d models %d were tried", len(specs.HFTypes()), tried)
	}
}
