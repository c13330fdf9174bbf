package estimate

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/requirement"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Machine is what a job runs on.
type Machine struct {
	GPU       *device.GPU
	Total     tensor.Bytes // of the device
	Context   tensor.Bytes
	Occupied  tensor.Bytes // by other processes
	Fraction  *float64     // set_per_process_memory_fraction; nil: none
	Conf      allocsim.Config
	ConfText  string // as written
	Env       op.Env
	Torch     string        // what of the project's files asks for the release; "": none was asked
	Given     bool          // the spec names a GPU
	ContextOf device.Figure // Context, and how it is known
	Shadowed  string        // how the GPU differs from what its name stands for; "": it does not, or has less
}

// Usable is what the allocator can reserve: what context and other processes
// leave, and no more than the memory fraction allows. It may be negative.
func (m *Machine) Usable() tensor.Bytes {
	left := m.Total - m.Context - m.Occupied
	fraction := m.Fraction
	if fraction == nil {
		fraction = m.Conf.MemoryFraction
	}
	if fraction != nil {
		left = min(left, tensor.Bytes(*fraction*float64(m.Total)))
	}
	return left
}

// Limit leaves so much usable, and takes nothing of it for the context, other processes or a fraction.
func (m *Machine) Limit(usable tensor.Bytes) {
	m.Total, m.Context, m.Occupied, m.Fraction, m.Conf.MemoryFraction = usable, 0, 0, nil, nil
}

// NewMachine resolves the device section and the PyTorch version of a spec.
// Mistakes are added to the spec's errors; the default stands in for what is
// wrong, so that the rest can be checked too. readFile reads the files of the
// spec's project (nil: there are none).
func NewMachine(s *spec.Spec, readFile func(name string) ([]byte, error)) *Machine {
	d := &s.Device
	named := namedGPU(s)
	gpu := gpuOf(s, named)
	m := &Machine{GPU: gpu, Total: gpu.Total.Value, Given: d.GPU.Set || describesGPU(d)}
	ver, err := m.release(s, readFile)
	if err != nil {
		s.Errs.Addf(s.Torch.At, "%v", err)
		ver = torchver.Default
	}
	m.ContextOf = contextOf(s, gpu)
	m.Context = m.ContextOf.Value
	m.Env = op.Env{Arch: gpu.Arch, SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM(), Torch: ver, CudnnWorkspace: cudnnWorkspace(s), Cudnn: ver.Cudnn(s.Torch.V)}
	if d.Cudnn.Set {
		if m.Env.Cudnn, err = torchver.ParseCudnn(d.Cudnn.V); err != nil {
			s.Errs.Addf(d.Cudnn.At, "cudnn: %v", err)
		}
	}
	for _, o := range []struct {
		size *spec.Size
		to   *tensor.Bytes
	}{{d.Memory, &m.Total}, {d.Reserved, &m.Occupied}} {
		if o.size != nil {
			*o.to = o.size.V
		}
	}
	if d.MemoryFraction.Set {
		if f := d.MemoryFraction.V; f > 1 {
			s.Errs.Addf(d.MemoryFraction.At, "memory_fraction must be between 0 and 1, not %v", f)
		} else {
			m.Fraction = &f
		}
	}
	m.Shadowed = m.shadowed(s, named)
	m.ConfText = d.AllocConf.V
	if m.Conf, err = allocsim.ParseConfig(d.AllocConf.V, ver); err != nil {
		at := d.AllocConf.At
		if ce, ok := err.(*allocsim.ConfigError); ok {
			at = within(s, at, ce)
			s.Errs.Addf(at, "alloc_conf: %s", ce.Message)
		} else {
			s.Errs.Addf(at, "alloc_conf: %v", err)
		}
	}
	return m
}

// release is the PyTorch of a spec, or the one that its project's files ask for.
func (m *Machine) release(s *spec.Spec, readFile func(name string) ([]byte, error)) (torchver.Version, error) {
	switch {
	case !s.Torch.Set:
		return torchver.Default, nil
	case s.Torch.V != torchver.Auto:
		return torchver.Parse(s.Torch.V)
	case readFile == nil:
		return torchver.Default, fmt.Errorf("torch: auto reads the project of a spec, and there is none; write the release, such as torch: %v", torchver.Released)
	}
	found, err := requirement.Torch(readFile)
	if err != nil {
		return torchver.Default, fmt.Errorf("torch: auto: %w", err)
	}
	m.Torch = found.Place.String()
	return found.Torch, nil
}

// within narrows the place of a string to the part at fault, if the string
// stands in the file as it is.
func within(s *spec.Spec, at spec.Span, e *allocsim.ConfigError) spec.Span {
	if at.Line < 1 || at.Line > len(s.Errs.Lines) {
		return at
	}
	line := []rune(s.Errs.Lines[at.Line-1])
	text := string(line[min(at.Col-1, len(line)):])
	quoted := strings.TrimLeft(text, `"'`)
	if !strings.HasPrefix(quoted, s.Device.AllocConf.V) {
		return at
	}
	at.Col += len(text) - len(quoted) + e.Offset
	at.Len = max(e.Length, 1)
	return at
}

// tight reports whether a job fits only by giving cached memory back: by retries,
// or, if more would be reserved without a limit than is usable, by what options of the
// allocator release without one.
func (m *Machine) tight(onGPU *allocsim.Result, reserved tensor.Bytes) bool {
	return len(onGPU.OOMs) == 0 && (onGPU.Stats.NumAllocRetries > 0 || reserved > m.Usable())
}

// givesBack names the options by which the allocator gives cached segments back
// before it retries.
func (m *Machine) givesBack() string {
	var names []string
	if m.Conf.MaxSplitSize > 0 {
		names = append(names, "max_split_size_mb")
	}
	if m.Conf.GarbageCollectionThreshold > 0 {
		names = append(names, "garbage_collection_threshold")
	}
	return strings.Join(names, " or ")
}
