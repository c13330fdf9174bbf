package exporttorch

import (
	_ "embed"
	"slices"

	"github.com/memplan/memplan/internal/program"
)

//go:embed python/load.py
var loadPython string

//go:embed python/convert.py
var convertPython string

// loads reports whether a model is read from a checkpoint to the GPU.
func loads(m *program.Model) bool { return m.Loaded != nil && m.Loaded.OnDevice }

// converts reports whether parameters of a model are converted after the load.
func converts(m *program.Model) bool { return m.Loaded != nil && len(m.Loaded.Convert) > 0 }

// loadingFunction prints what reads models to the GPU, and what converts them then.
func (s *script) loadingFunction() {
	if slices.ContainsFunc(s.job.Models, loads) {
		s.b.WriteString(loadPython)
	}
	if slices.ContainsFunc(s.job.Models, converts) {
		s.b.WriteString(convertPython)
	}
}

// loaded prints what makes a model as from_pretrained does.
func (s *script) loaded(m *program.Model) {
	l := m.Loaded
	name := s.modelName(m.Name)
	s.line(s.wrapped(name+" = typed("+s.className(m.Root)+"(), "+program.Literal(l.DType)+", {", s.bufferTypes(m), "})"))
	if m.Quantized != nil {
		s.quantizedLayers(m)
	}
	if l.Without != "" {
		s.printf("%s, %s.%[1]s = %[2]s.%[1]s, None # in no checkpoint", l.Without, name)
	}
	stored := ""
	if l.Stored {
		stored = ", True"
	}
	auto := ""
	if l.Auto {
		auto = ", auto=True"
	}
	if l.OnDevice {
		s.printf("from_pretrained(%s%s%s)", name, stored, auto)
	}
	for _, c := range l.Convert {
		if !c.Copies {
			s.conversion(m, name, c)
		}
	}
	if !l.OnDevice {
		if a := m.Adapters; a != nil && a.OnHost {
			s.addAdapters(m)
		}
		if s.job.Parallel.FSDP == nil { // fully_shard moves what it takes
			s.printf("%s.to(device)", name)
		}
	}
}

// conversion prints what converts parameters of a model.
func (s *script) conversion(m *program.Model, name string, c program.Conversion) {
	except := ""
	if len(c.Except) > 0 {
		except = ", except_=" + s.patterns(c.Except, m)
	}
	s.printf("convert(%s, %s, %s%s)", name, s.patterns(c.Modules, m), program.Literal(c.DType), except)
	if c.EmptyCache {
		s.line("torch.cuda.empty_cache()")
	}
}

// bufferTypes lists the buffers of a model that do not have the type of its weights, as
// items of a dict.
func (s *script) bufferTypes(m *program.Model) []string {
	var out []string
	m.Root.Walk(func(path string, c *program.Class) {
		for _, p := range c.Buffers {
			if !p.Fixed && p.DType != m.Loaded.DType {
				out = append(out, `"`+s.path(program.Join(path, p.Name))+`": `+program.Literal(p.DType))
			}
		}
	})
	return out
}
