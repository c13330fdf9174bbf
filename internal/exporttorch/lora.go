package exporttorch

import (
	_ "embed"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// The classes and functions that stand for PEFT in a script, so that it needs
// PyTorch alone.
var (
	//go:embed python/lora.py
	loraPython string
	//go:embed python/lora_conv.py
	loraConvPython string
	//go:embed python/lora_embedding.py
	loraEmbeddingPython string
	//go:embed python/lora_4bit.py
	lora4bitPython string
	//go:embed python/lora_8bit.py
	lora8bitPython string
	//go:embed python/lora_add.py
	loraAddPython string
)

// adapterKinds lists the classes that adapters go around with the adapter's, in
// the order of first use.
func (s *script) adapterKinds(a *program.Adapters) (kinds []string, adapters map[string]string) {
	adapters = map[string]string{}
	for _, l := range a.Layers {
		base := l.Class.Children[0].Class
		kind, _, _ := strings.Cut(base.Python, "(")
		if kind == "" {
			kind = s.className(base)
		}
		if adapters[kind] == "" {
			kinds = append(kinds, kind)
			adapters[kind], _, _ = strings.Cut(l.Class.Python, "(")
			if strings.HasPrefix(adapters[kind], "LoraConv") {
				adapters[kind] = "LoraConv"
			}
		}
	}
	return kinds, adapters
}

// adapterClasses prints what adapters are made of.
func (s *script) adapterClasses() {
	used := map[string]bool{}
	for _, m := range s.job.Models {
		if m.Adapters == nil {
			continue
		}
		_, adapters := s.adapterKinds(m.Adapters)
		for _, a := range adapters {
			used[a] = true
		}
	}
	if len(used) == 0 {
		return
	}
	s.b.WriteString(loraPython)
	for _, part := range []struct{ name, text string }{
		{"LoraConv", loraConvPython}, {"LoraEmbedding", loraEmbeddingPython},
		{"LoraLinear4bit", lora4bitPython}, {"LoraLinear8bit", lora8bitPython},
	} {
		if used[part.name] {
			s.b.WriteString(part.text)
		}
	}
	s.b.WriteString(loraAddPython)
}

// adapters prints the calls that add adapters.
func (s *script) adapters() {
	for _, m := range s.job.Models {
		a := m.Adapters
		if a == nil {
			continue
		}
		kinds, adapters := s.adapterKinds(a)
		parts := make([]string, len(kinds))
		for i, k := range kinds {
			parts[i] = k + ": " + adapters[k]
		}
		bias := ""
		if a.Bias != "none" {
			bias = ", bias=" + program.Literal(a.Bias)
		}
		s.printf("add_adapters(%s, {%s}, %s, %s, %s, r=%d, alpha=%s, dropout=%s, dtype=%s%s)", s.modelName(m.Name), strings.Join(parts, ", "),
			s.patterns(a.Targets, m), s.patterns(a.Except, m), s.patterns(a.Modules, m), a.R, program.Literal(a.Alpha), program.Literal(a.Dropout), program.Literal(a.DType), bias)
		if s.job.Inference != "" || m.Eval {
			s.printf("%s.eval()", s.modelName(m.Name))
		}
	}
}

// adapted reports whether a model has adapters.
func adapted(j *program.Job) bool {
	for _, m := range j.Models {
		if m.Adapters != nil {
			return true
		}
	}
	return false
}
