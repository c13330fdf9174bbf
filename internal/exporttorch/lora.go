package exporttorch

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nn"
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

// adapter is a class of a script that stands for some of PEFT's.
type adapter struct {
	layers []*nn.Layer
	name   string
	text   string // its definition; "": it is among what all have
}

// adapterTable is in the order in which scripts define the classes.
var adapterTable = []*adapter{
	{[]*nn.Layer{nn.LoraLinear}, "LoraLinear", ""},
	{nn.LoraConv[1:], "LoraConv", loraConvPython},
	{[]*nn.Layer{nn.LoraEmbedding}, "LoraEmbedding", loraEmbeddingPython},
	{[]*nn.Layer{nn.LoraLinear4bit}, "LoraLinear4bit", lora4bitPython},
	{[]*nn.Layer{nn.LoraLinear8bit}, "LoraLinear8bit", lora8bitPython},
}

// adapterOf is the class for an adapter.
func adapterOf(l *nn.Layer) *adapter {
	return adapterTable[slices.IndexFunc(adapterTable, func(a *adapter) bool { return slices.Contains(a.layers, l) })]
}

// adapterKinds lists the classes that adapters go around with the adapter's, in
// the order of first use.
func (s *script) adapterKinds(a *program.Adapters) (kinds []string, adapters map[string]*adapter) {
	adapters = map[string]*adapter{}
	for _, l := range a.Layers {
		base := l.Class.Children[0].Class
		kind := base.Is().Python
		if base.IsBlock() {
			kind = s.className(base)
		}
		if adapters[kind] == nil {
			kinds = append(kinds, kind)
			adapters[kind] = adapterOf(l.Class.Layer)
		}
	}
	return kinds, adapters
}

// adapterClasses prints what adapters are made of.
func (s *script) adapterClasses() {
	used := map[*adapter]bool{}
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
	for _, a := range adapterTable {
		if used[a] {
			s.b.WriteString(a.text)
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
			parts[i] = k + ": " + adapters[k].name
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
