package estimate

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// gpuOf resolves the GPU of a spec: one that the user described in a file, a
// row of the table, or what the device section says by itself. Keys of the
// section replace the figures of either; memory and context are left to
// NewMachine. Mistakes are added to the spec's errors, and the default GPU
// stands in.
func gpuOf(s *spec.Spec) *device.GPU {
	d := &s.Device
	gpu := namedGPU(s)
	arch, sms := gpu.Arch, gpu.SMs
	if d.Arch.Set {
		if a, err := device.ParseArch(d.Arch.V); err != nil {
			s.Errs.Addf(d.Arch.At, "%v", err)
		} else {
			arch = a
		}
	}
	if d.SMs.Set {
		sms = int(d.SMs.V)
	}
	switch {
	case !d.GPU.Set && describesGPU(d):
		if missing := missingKeys(d); len(missing) > 0 {
			at := d.Arch.At
			if !d.Arch.Set {
				at = d.SMs.At
			}
			s.Errs.Addf(at, "a device without gpu needs memory, arch and sms; missing: %s", strings.Join(missing, ", "))
			return gpu
		}
		gpu = device.Custom(customName(arch, sms), d.Memory.V, arch, sms)
	case arch == gpu.Arch && sms == gpu.SMs:
	case d.Memory != nil: // nothing is left of the row
		gpu = device.Custom(customName(arch, sms), d.Memory.V, arch, sms)
	default:
		gpu = device.Custom(fmt.Sprintf("%s, taken as %s", gpu.Display, customName(arch, sms)), gpu.Total.Value, arch, sms)
	}
	if d.Name.Set {
		gpu.Display = d.Name.V
	}
	return gpu
}

// customName is what a GPU without a name is called.
func customName(arch, sms int) string { return fmt.Sprintf("a GPU of sm_%d with %d SMs", arch, sms) }

// namedGPU looks up device.gpu, or the default.
func namedGPU(s *spec.Spec) *device.GPU {
	name := device.Default
	if at := &s.Device.GPU; at.Set {
		name = at.V
		for _, g := range s.GPUs {
			if strings.EqualFold(g.Name.V, name) {
				return describedGPU(s, g)
			}
		}
	}
	gpu, err := device.Lookup(name)
	if err != nil {
		s.Errs.Addf(s.Device.GPU.At, "%v", err)
		gpu = &device.All()[0]
	}
	return gpu
}

// describedGPU is a GPU of the user's file.
func describedGPU(s *spec.Spec, g *spec.GPU) *device.GPU {
	arch, err := device.ParseArch(g.Arch.V)
	if err != nil {
		s.Errs.Addf(s.Device.GPU.At, "gpu %q: %v", g.Name.V, err)
		arch = 80
	}
	gpu := device.Custom(g.Name.V, g.Memory.V, arch, int(g.SMs.V))
	gpu.Name = g.Name.V
	if g.Context != nil {
		gpu.Context = device.Figure{Value: g.Context.V, Low: g.Context.V, High: g.Context.V, Source: "given by the user"}
	}
	return gpu
}

// describesGPU reports whether a device section says by itself what a GPU is.
func describesGPU(d *spec.Device) bool { return d.Arch.Set || d.SMs.Set }

// missingKeys lists what a device section lacks to do without a table.
func missingKeys(d *spec.Device) []string {
	var out []string
	for _, k := range []struct {
		name string
		set  bool
	}{{"memory", d.Memory != nil}, {"arch", d.Arch.Set}, {"sms", d.SMs.Set}} {
		if !k.set {
			out = append(out, k.name)
		}
	}
	return out
}

// shadowed says how a GPU that a file or the spec describes differs from the row
// of the table whose name it has, if that lets a job take more: a spec or a
// configuration may not have been written by who trusts the verdict. What the
// command line says is not told.
func (m *Machine) shadowed(s *spec.Spec) string {
	d := &s.Device
	if !d.GPU.Set {
		return ""
	}
	fromFile := func(size *spec.Size) bool { return size != nil && size.At.Line > 0 }
	known, err := device.Lookup(d.GPU.V)
	if err != nil { // one of a file, which has an owner as well
		for _, g := range s.GPUs {
			switch {
			case !strings.EqualFold(g.Name.V, d.GPU.V):
			case fromFile(d.Memory) && d.Memory.V > g.Memory.V:
				return fmt.Sprintf("device.memory gives %s %v; the file of devices has %v", g.Name.V, d.Memory.V, g.Memory.V)
			case fromFile(d.Context) && g.Context != nil && d.Context.V < g.Context.V:
				return fmt.Sprintf("device.context gives %s %v; the file of devices has %v", g.Name.V, d.Context.V, g.Context.V)
			default:
				return ""
			}
		}
		return ""
	}
	for _, g := range s.GPUs {
		if strings.EqualFold(g.Name.V, d.GPU.V) {
			return fmt.Sprintf("the file of devices gives %s %v, sm_%d and %d SMs; it has %v, sm_%d and %d SMs", known.Name, m.GPU.Total.Value, m.GPU.Arch, m.GPU.SMs,
				known.Total.Value, known.Arch, known.SMs)
		}
	}
	switch {
	case fromFile(d.Memory) && d.Memory.V > known.Total.High:
		return fmt.Sprintf("device.memory gives %s %v; it has %v", known.Name, d.Memory.V, known.Total.Value)
	case fromFile(d.Context) && d.Context.V < known.Context.Low:
		return fmt.Sprintf("device.context gives %s %v; what is known is %v to %v", known.Name, d.Context.V, known.Context.Low, known.Context.High)
	}
	return ""
}

// gpuNotes warns of what the figures of a GPU leave open.
func (m *Machine) gpuNotes(warn func(format string, args ...any)) {
	if m.Shadowed != "" {
		warn(NoteGPU+"%s", m.Shadowed)
	}
	arch := m.GPU.Arch
	if !m.Env.Torch.WheelsRunOn(arch) {
		warn("the wheels of PyTorch %v have no kernels for sm_%d; %v is the first that has", m.Env.Torch, arch, torchver.FirstWheelsFor(arch))
	}
	if arch < 70 || arch > 90 {
		warn("the rules were recorded on sm_70 to sm_90; sm_%d is taken to be like the nearest of them", arch)
	}
	if m.GPU.Unified && m.Occupied == 0 {
		warn("%s shares its memory with the CPU: what the system and the process hold there is not counted (device.other_processes)", m.GPU.Display)
	}
}
