package estimate

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// machine resolves a device section.
func machine(t *testing.T, device string, o spec.Options) (*Machine, error) {
	t.Helper()
	s, err := spec.Parse("t.yaml", []byte("memplan: 1\ndevice: "+device+"\nmodel: {preset: mlp}\n"), o)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachine(s, nil)
	return m, s.Errs.Err()
}

// TestGPU checks which GPU a device section means, and what it replaces.
func TestGPU(t *testing.T) {
	files, err := spec.ParseGPUs("d.yaml", []byte("[{name: Mine, memory: 20GiB, arch: 8.9, sms: 60}, "+
		"{name: l4, memory: 1GiB, arch: sm_75, sms: 20, context: 64MiB}, {name: odd, memory: 1GiB, arch: 9, sms: 20}]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		device           string
		name, display    string
		arch, sms        int
		total, context   tensor.Bytes // context in MiB
		assumed, nothing bool         // the context; no GPU is named
	}{
		{"{}", "a100-40gb", "NVIDIA A100 40GB", 80, 108, 42405855232, 500, false, true},
		{"{memory: 20GiB}", "a100-40gb", "NVIDIA A100 40GB", 80, 108, 20 * tensor.GiB, 500, false, true},
		{"{gpu: t4}", "t4", "NVIDIA T4", 75, 40, 14912 * tensor.MiB, 135, false, false},
		{"{gpu: t4, memory: 1GiB, context: 99MiB, name: small}", "t4", "small", 75, 40, tensor.GiB, 99, false, false},
		{"{gpu: t4, arch: 7.5, sms: 40, memory: 1GiB}", "t4", "NVIDIA T4", 75, 40, tensor.GiB, 135, false, false},
		{"{gpu: t4, sms: 80}", "custom", "NVIDIA T4, taken as a GPU of sm_75 with 80 SMs", 75, 80, 14912 * tensor.MiB, 215, true, false},
		{"{gpu: t4, sms: 80, memory: 1GiB}", "custom", "a GPU of sm_75 with 80 SMs", 75, 80, tensor.GiB, 215, true, false},
		{"{memory: 8GiB, arch: sm_80, sms: 108}", "custom", "a GPU of sm_80 with 108 SMs", 80, 108, 8 * tensor.GiB, 504, true, false},
		{"{memory: 8GiB, arch: '8.6', sms: 10, context: 1MiB, name: tiny}", "custom", "tiny", 86, 10, 8 * tensor.GiB, 1, true, false},
		{"{gpu: MINE}", "Mine", "Mine", 89, 60, 20 * tensor.GiB, 237, true, false},
		{"{gpu: l4}", "l4", "l4", 75, 20, tensor.GiB, 64, false, false},
	} {
		m, err := machine(t, c.device, spec.Options{GPUs: files})
		if err != nil {
			t.Errorf("%s: %v", c.device, err)
			continue
		}
		if m.GPU.Name != c.name || m.GPU.Display != c.display || m.Total != c.total || m.Context != c.context*tensor.MiB ||
			m.Env.Arch != c.arch || m.Env.SMs != c.sms || m.Env.ThreadsPerSM != m.GPU.ThreadsPerSM() ||
			m.GPU.Context.Assumed != c.assumed || m.Given == c.nothing {
			t.Errorf("%s: %+v of %+v", c.device, m, m.GPU)
		}
	}
	for _, c := range []struct{ device, want string }{
		{"{arch: sm_80}", "t.yaml:2:16: a device without gpu needs memory, arch and sms; missing: memory, sms"},
		{"{sms: 8, memory: 1GiB}", "t.yaml:2:15: a device without gpu needs memory, arch and sms; missing: arch"},
		{"{gpu: t4, arch: 8.1}", `t.yaml:2:25: unknown architecture "8.1"; allowed are sm_60, sm_61, `},
		{"{gpu: odd}", `t.yaml:2:15: gpu "odd": unknown architecture "9"; allowed are `},
		{"{gpu: ''}", `t.yaml:2:15: unknown gpu ""`},
	} {
		if _, err := machine(t, c.device, spec.Options{GPUs: files}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.device, err, c.want)
		}
	}
}

// A GPU of which a file says more than its name stands for is told, whether the
// name is of the table, of the user's file or the default.
func TestShadowed(t *testing.T) {
	file, err := spec.ParseGPUs("d.yaml", []byte("[{name: lab, memory: 20GiB, arch: 8.9, sms: 60}, {name: l4, memory: 1GiB, arch: 7.5, sms: 20, context: 64MiB}]"))
	if err != nil {
		t.Fatal(err)
	}
	const l4 = "the file of devices gives l4 1.00 GiB, sm_75 and 20 SMs; it has 22.03 GiB, sm_89 and 58 SMs"
	for _, c := range []struct{ device, want string }{
		{"{gpu: t4}", ""},
		{"{gpu: t4, memory: 1GiB, context: 900MiB, memory_fraction: 1.0}", ""}, // less
		{"{gpu: t4, memory: 15GiB}", "device.memory gives t4 15.00 GiB; it has 14.56 GiB"},
		{"{gpu: NVIDIA T4, memory: 15GiB}", "device.memory gives t4 15.00 GiB; it has 14.56 GiB"},
		{"{gpu: t4, context: 0}", "device.context gives t4 0 B; it is taken to have 115.00 MiB to 165.00 MiB"},
		{"{gpu: t4, arch: 7.5, sms: 40}", ""},
		{"{gpu: t4, arch: 9.0}", "device.arch and device.sms give t4 sm_90 and 40 SMs; it has sm_75 and 40 SMs"},
		{"{gpu: t4, sms: 20, memory: 15GiB}", "device.memory gives t4 15.00 GiB; it has 14.56 GiB; device.arch and device.sms give t4 sm_75 and 20 SMs; it has sm_75 and 40 SMs"},
		{"{memory: 900TiB}", "device.memory gives a100-40gb 900.00 TiB; it has 39.49 GiB"},
		{"{context: 0}", "device.context gives a100-40gb 0 B; it is taken to have 415.00 MiB to 535.00 MiB"},
		{"{memory: 900TiB, arch: 7.5, sms: 40}", ""}, // of no name
		{"{gpu: lab}", ""},
		{"{gpu: lab, memory: 19GiB}", ""},
		{"{gpu: LAB, memory: 21GiB}", "device.memory gives lab 21.00 GiB; it has 20.00 GiB"},
		{"{gpu: lab, context: 1MiB}", "device.context gives lab 1.00 MiB; it is taken to have "},
		{"{gpu: lab, arch: 9.0}", "device.arch and device.sms give lab sm_90 and 60 SMs; it has sm_89 and 60 SMs"},
		{"{gpu: l4}", l4},
		{"{gpu: l4, memory: 2GiB}", "device.memory gives l4 2.00 GiB; it has 1.00 GiB; " + l4},
		{"{gpu: l4, context: 63MiB}", "device.context gives l4 63.00 MiB; it is taken to have 64.00 MiB to 64.00 MiB; " + l4},
	} {
		m, err := machine(t, c.device, spec.Options{GPUs: file})
		if err != nil || !strings.HasPrefix(m.Shadowed, c.want) || (m.Shadowed == "") != (c.want == "") {
			t.Errorf("%s: %q, %v", c.device, m.Shadowed, err)
		}
	}
	m, err := machine(t, "{gpu: t4}", spec.Options{Set: []string{"device.memory=900TiB", "device.arch=9.0"}})
	if err != nil || m.Shadowed != "" { // the command line is the user's
		t.Errorf("%q, %v", m.Shadowed, err)
	}
}

// TestGPUNotes checks that a report says what a GPU leaves open.
func TestGPUNotes(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string // parts of the warnings, in order
	}{
		{[]string{"device.gpu=rtx-4090"}, ""},
		{[]string{"device.gpu=p100"}, "sm_60 is taken to be like the nearest"},
		{[]string{"device.gpu=b200", "torch=2.6"}, "no kernels for sm_100; 2.7 is the first|sm_100 is taken"},
		{[]string{"device.gpu=b200", "torch=2.7"}, "sm_100 is taken"},
		{[]string{"device.gpu=rtx-4090", "torch=2.14"}, ""},
		{[]string{"device.gpu=rtx-4090", "torch=2.15"}, "PyTorch 2.15 is not released"},
		{[]string{"device.gpu=jetson-agx-orin"}, "shares its memory with the CPU"},
		{[]string{"device.gpu=jetson-agx-orin", "device.other_processes=2GiB"}, ""},
	} {
		_, r := estimateText(t, linear, c.set...)
		var parts []string
		if c.want != "" {
			parts = strings.Split(c.want, "|")
		}
		if len(r.Warnings) != len(parts) {
			t.Errorf("%v: %q", c.set, r.Warnings)
			continue
		}
		for i, p := range parts {
			if !strings.Contains(r.Warnings[i], p) {
				t.Errorf("%v: %q has no %q", c.set, r.Warnings[i], p)
			}
		}
	}
}
