package spec

import (
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// GPU is a GPU that the user describes in a file of his own.
type GPU struct {
	Name    String  `yaml:"name" doc:"name for device.gpu"`
	Memory  *Size   `yaml:"memory" doc:"total memory as CUDA reports it"`
	Arch    String  `yaml:"arch" doc:"architecture, such as sm_80 or 8.0"`
	SMs     Integer `yaml:"sms" min:"1" max:"1024" doc:"streaming multiprocessors"`
	Context *Size   `yaml:"context" doc:"memory of the CUDA context; by default it is computed"`
}

// Calibrated is a CUDA context that was measured on a GPU.
type Calibrated struct {
	GPU              string // name in the table
	Value, Low, High tensor.Bytes
	Says             string // when, and on what
}

// ParseGPUs reads a list of GPUs. The error, if any, is an *Errors with every
// mistake but those in architectures, which package estimate knows.
func ParseGPUs(path string, text []byte) ([]*GPU, error) {
	errs := &Errors{File: path, Lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")}
	root := readYAML(text, errs)
	if root == nil {
		return nil, errs.Err()
	}
	if root.Kind != List {
		errs.Addf(root.Span, "a file of devices is a list of mappings with the keys name, memory, arch, sms and context; not %s", root.Describe())
		return nil, errs.Err()
	}
	d := &decoder{errs: errs, env: &paramEnv{}}
	var all []*GPU
	seen := map[string]bool{}
	for _, it := range root.Items {
		g := &GPU{}
		d.section(it, g, "device")
		var missing []string
		for _, key := range []string{"name", "memory", "arch", "sms"} {
			if v := it.Get(key); v == nil || v.Kind == Null {
				missing = append(missing, key)
			}
		}
		if (it.Kind == Map || it.Kind == Null) && len(missing) > 0 {
			errs.Addf(it.Span, "a device needs name, memory, arch and sms; missing: %s", strings.Join(missing, ", "))
		}
		errs.checkMemory(g.Memory)
		if name := strings.ToLower(g.Name.V); g.Name.Set {
			if seen[name] {
				errs.Addf(g.Name.At, "two devices are named %q", g.Name.V)
			}
			seen[name] = true
		}
		all = append(all, g)
	}
	return all, errs.Err()
}

// checkMemory reports a GPU's memory in which a unit was forgotten, or none.
func (e *Errors) checkMemory(s *Size) {
	if s != nil && s.V < tensor.MiB {
		e.Addf(s.At, "memory must be a size such as 24GiB, not %v", s.V)
	}
}
