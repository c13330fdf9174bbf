package estimate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// gpuOf resolves the GPU of a spec: the one that it names, or what the device
// section says by itself. Keys of the section replace the figures of the one that
// is named; memory and context are left to NewMachine. Mistakes are added to the
// spec's errors.
func gpuOf(s *spec.Spec, named *device.GPU) *device.GPU {
	d, gpu := &s.Device, named
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
	if d.SMs.Set {
		gpu.SMsSource = "given by the user"
	}
	if d.Name.Set {
		gpu.Display = d.Name.V
	}
	return gpu
}

// contextOf is what a process takes on a GPU beside its tensors: what the spec says, or
// what was measured on such a GPU, or what the table has for the release of CUDA and
// its way of loading kernels. Mistakes are added to the spec's errors.
func contextOf(s *spec.Spec, gpu *device.GPU) device.Figure {
	d := &s.Device
	var release device.CUDA
	mode := device.Lazy // of all releases of PyTorch that are modelled, built as they are released
	if d.CUDA.Set {
		var err error
		if release, err = device.ParseCUDA(d.CUDA.V); err != nil {
			s.Errs.Addf(d.CUDA.At, "%v", err)
			return gpu.Context
		}
		mode = release.Loads()
	} else {
		release = device.LazySince
	}
	if d.ModuleLoading.Set {
		mode = device.Loading(d.ModuleLoading.V)
	}
	if mode == device.Lazy && release.Before(device.LazySince) {
		s.Errs.Addf(d.ModuleLoading.At, "module_loading: lazy needs CUDA %v or later, not %v", device.LazySince, release)
	}
	if d.Context != nil {
		return device.Figure{Value: d.Context.V, Low: d.Context.V, High: d.Context.V, Source: "given by the user"}
	}
	if mode == device.Lazy {
		for _, c := range s.Calibrated {
			if c.GPU == gpu.Name {
				return device.Figure{Value: c.Value, Low: c.Low, High: c.High, Source: c.Says}
			}
		}
	}
	return gpu.ContextWith(release, mode)
}

// customName is what a GPU without a name is called.
func customName(arch, sms int) string { return fmt.Sprintf("a GPU of sm_%d with %d SMs", arch, sms) }

// namedGPU looks up device.gpu, or the default: one that the user described in a
// file, or a row of the table. Mistakes are added to the spec's errors, and the
// default GPU stands in.
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

// shadowed says how the GPU of a job differs from what its name stands for, and
// what a file has under that name from the row of the table: a spec or a
// configuration may not have been written by who trusts the verdict. Less memory
// is not told, as it lets no job take more, nor what the command line says.
func (m *Machine) shadowed(s *spec.Spec, named *device.GPU) string {
	d := &s.Device
	if !d.GPU.Set && describesGPU(d) {
		return "" // it has no name of another
	}
	var out []string
	tell := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	fromFile := func(at spec.Span) bool { return at.Line > 0 }
	if d.Memory != nil && fromFile(d.Memory.At) && d.Memory.V > named.Total.High {
		tell("device.memory gives %s %v; it has %v", named.Name, d.Memory.V, named.Total.Value)
	}
	if d.Context != nil && fromFile(d.Context.At) && d.Context.V < named.Context.Low {
		tell("device.context gives %s %v; it is taken to have %v to %v", named.Name, d.Context.V, named.Context.Low, named.Context.High)
	}
	if describesGPU(d) && (fromFile(d.Arch.At) || fromFile(d.SMs.At)) && (m.GPU.Arch != named.Arch || m.GPU.SMs != named.SMs) {
		tell("device.arch and device.sms give %s sm_%d and %d SMs; it has sm_%d and %d SMs", named.Name, m.GPU.Arch, m.GPU.SMs, named.Arch, named.SMs)
	}
	known, err := device.Lookup(named.Name)
	if err == nil && slices.ContainsFunc(s.GPUs, func(g *spec.GPU) bool { return d.GPU.Set && strings.EqualFold(g.Name.V, d.GPU.V) }) {
		tell("the file of devices gives %s %v, sm_%d and %d SMs; it has %v, sm_%d and %d SMs", known.Name, named.Total.Value, named.Arch, named.SMs,
			known.Total.Value, known.Arch, known.SMs)
	}
	return strings.Join(out, "; ")
}

// gpuNotes warns of what the figures of a GPU leave open.
func (m *Machine) gpuNotes() []note.Note {
	var out []note.Note
	warn := func(c *note.Code, format string, args ...any) { out = append(out, c.New(format, args...)) }
	if m.Shadowed != "" {
		warn(note.GPUChanged, "the GPU is not as memplan knows it: %s", m.Shadowed)
	}
	arch := m.GPU.Arch
	if !m.Env.Torch.WheelsRunOn(arch) {
		warn(note.NoKernels, "the wheels of PyTorch %v have no kernels for sm_%d; %v is the first that has", m.Env.Torch, arch, torchver.FirstWheelsFor(arch))
	}
	if v := m.Env.Torch; !torchver.Released.AtLeast(v) {
		warn(note.Unreleased, "PyTorch %v is not released: its rules are those of the main branch, and may change; %v is the newest release that is modelled", v, torchver.Released)
	}
	if arch < 70 || arch > 90 {
		warn(note.OtherArch, "the rules were recorded on sm_70 to sm_90; sm_%d is taken to be like the nearest of them", arch)
	}
	if m.GPU.Unified && m.Occupied == 0 {
		out = append(out, note.SharedRAM.New("%s shares its memory with the CPU: what the system and the process hold there is not counted (device.other_processes)", m.GPU.Display).Of("device.other_processes"))
	}
	return out
}
