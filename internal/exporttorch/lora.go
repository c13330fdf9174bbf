package exporttorch

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// The classes and functions that stand for PEFT in a script, so that it needs
// PyTorch alone.
var (
	//go:embed python/adapter.py
	adapterPython string
	//go:embed python/ia3.py
	ia3Python string
	//go:embed python/ia3_feedforward.py
	ia3FeedforwardPython string
	//go:embed python/oft.py
	oftPython string
	//go:embed python/boft.py
	boftPython string
	//go:embed python/oft_quantized.py
	oftQuantizedPython string
	//go:embed python/adalora.py
	adaloraPython string
	//go:embed python/adalora_4bit.py
	adalora4bitPython string
	//go:embed python/adalora_8bit.py
	adalora8bitPython string
	//go:embed python/lora.py
	loraPython string
	//go:embed python/lora_conv.py
	loraConvPython string
	//go:embed python/lora_embedding.py
	loraEmbeddingPython string
	//go:embed python/lora_parameter.py
	loraParameterPython string
	//go:embed python/lora_4bit.py
	lora4bitPython string
	//go:embed python/lora_8bit.py
	lora8bitPython string
	//go:embed python/lora_dora.py
	loraDoraPython string
	//go:embed python/lora_dora4bit.py
	loraDora4bitPython string
	//go:embed python/lora_add.py
	loraAddPython string
	//go:embed python/lora_kernels.py
	loraKernelsPython string
)

// adapter is a class of a script that stands for some of PEFT's.
type adapter struct {
	layers []*nn.Layer
	name   string
	text   string // its definition; "": it is among what all of LoRA have
	own    bool   // it is not LoRA's
}

// adapterTable is in the order in which scripts define the classes.
var adapterTable = []*adapter{
	{[]*nn.Layer{nn.LoraLinear}, "LoraLinear", "", false},
	{nn.LoraConv[1:], "LoraConv", loraConvPython, false},
	{[]*nn.Layer{nn.LoraEmbedding}, "LoraEmbedding", loraEmbeddingPython, false},
	{[]*nn.Layer{nn.LoraParameter}, "lora_parameters", loraParameterPython, false},
	{[]*nn.Layer{nn.LoraLinear4bit}, "LoraLinear4bit", lora4bitPython, false},
	{[]*nn.Layer{nn.DoraLinear}, "DoraLinear", loraDoraPython, false},
	{[]*nn.Layer{nn.DoraLinear4bit}, "DoraLinear4bit", loraDora4bitPython, false},
	{[]*nn.Layer{nn.LoraLinear8bit}, "LoraLinear8bit", lora8bitPython, false},
	{[]*nn.Layer{nn.IA3Linear}, "IA3Linear", ia3Python, true},
	{[]*nn.Layer{nn.IA3Feedforward}, "IA3Feedforward", ia3FeedforwardPython, true},
	{[]*nn.Layer{nn.OFTLinear}, "OFTLinear", oftPython, true},
	{[]*nn.Layer{nn.OFTQuantized}, "OFTQuantized", oftQuantizedPython, true},
	{[]*nn.Layer{nn.BOFTLinear}, "BOFTLinear", boftPython, true},
	{[]*nn.Layer{nn.SVDLinear}, "SVDLinear", adaloraPython, true},
	{[]*nn.Layer{nn.SVDLinear4bit}, "SVDLinear4bit", adalora4bitPython, true},
	{[]*nn.Layer{nn.SVDLinear8bit}, "SVDLinear8bit", adalora8bitPython, true},
}

// adapterOf is the class for an adapter.
func adapterOf(l *nn.Layer) *adapter {
	return adapterTable[slices.IndexFunc(adapterTable, func(a *adapter) bool { return slices.Contains(a.layers, l) })]
}

// adapterClasses prints what adapters are made of.
func (s *script) adapterClasses() {
	used, prompts := map[*adapter]bool{}, false
	for _, m := range s.job.Models {
		if m.Adapters != nil {
			prompts = prompts || m.Adapters.Prompt != ""
			for _, l := range m.Adapters.Layers {
				used[adapterOf(l.Class.Layer)] = true
				switch l.Class.Layer { // is made of it
				case nn.DoraLinear4bit:
					used[adapterOf(nn.DoraLinear)] = true
				case nn.OFTQuantized:
					used[adapterOf(nn.OFTLinear)] = true
				case nn.SVDLinear4bit, nn.SVDLinear8bit:
					used[adapterOf(nn.SVDLinear)] = true
				}
			}
		}
	}
	if len(used) == 0 && !prompts {
		return
	}
	s.b.WriteString(adapterPython)
	for a := range used {
		if !a.own {
			s.b.WriteString(loraPython)
			break
		}
	}
	for _, a := range adapterTable {
		if used[a] {
			s.b.WriteString(a.text)
		}
	}
	s.b.WriteString(loraAddPython)
	if fuses(s.job) {
		s.b.WriteString(loraKernelsPython)
	}
}

// parametrizes reports whether parameters have adapters of their own.
func parametrizes(j *program.Job) bool {
	return slices.ContainsFunc(j.Models, func(m *program.Model) bool {
		return m.Adapters != nil && slices.ContainsFunc(m.Adapters.Groups, ofParameters)
	})
}

// ofParameters reports whether the adapters of a group are of parameters.
func ofParameters(g program.AdapterGroup) bool { return g.Layer.Layer == nn.LoraParameter }

// fuses reports whether fused kernels compute adapters of a job.
func fuses(j *program.Job) bool {
	return slices.ContainsFunc(j.Models, func(m *program.Model) bool { return m.Adapters != nil && len(m.Adapters.Kernels) > 0 })
}

// forwardOf is the forward of a class as the script prints it: an attention that fused
// kernels rewrite calls functions that modules get when they are fused.
func (s *script) forwardOf(c *program.Class) *program.Func {
	fused := func(list []program.Fused) *program.Func {
		for _, f := range list {
			if f.Class == c && c.Child("q_proj") >= 0 {
				return f.Forward
			}
		}
		return c.Forward
	}
	for _, m := range s.job.Models {
		if m.Adapters == nil {
			continue
		}
		if f := fused(m.Adapters.Fused); f != c.Forward {
			return f
		}
		if s.job.Eval == nil {
			continue
		}
		for _, e := range s.job.Eval.Sizes() {
			if f := fused(e.Fused[m.Name]); f != c.Forward {
				return f
			}
		}
	}
	return c.Forward
}

// fuse prints the calls that fuse the adapters of a model and add to its loss.
func (s *script) fuse(m *program.Model, name string) {
	if a := m.Adapters; a != nil && len(a.Kernels) > 0 {
		s.printf(`fuse_adapters(%s, ["%s"])`, name, strings.Join(a.Kernels, `", "`))
	}
	if a := m.Adapters; a != nil && a.Regularized != nil {
		s.printf("regularize(%s, %s)", name, program.Literal(*a.Regularized))
	}
}

// adapters prints the calls that add adapters to the models, before or after these
// are moved to the device.
func (s *script) adapters() {
	for _, m := range s.job.Models {
		if a := m.Adapters; a != nil && !a.OnHost {
			s.addAdapters(m)
			if s.job.Inference != "" || m.Eval {
				s.printf("%s.eval()", s.modelName(m.Name))
			}
		}
		if a := m.Adapters; a != nil && a.Again {
			s.printf("%s.to(device)", s.modelName(m.Name))
		}
	}
}

// adaptedOnHost prints what makes a model with adapters and moves it to the device.
func (s *script) adaptedOnHost(m *program.Model) {
	name, d := s.modelName(m.Name), s.job.DType
	switch {
	case s.ownTypes(m) != nil:
		s.line(s.wrapped(name+" = typed("+s.className(m.Root)+"(), "+program.Literal(d)+", {", s.ownTypes(m), "})"))
	case d != tensor.Float32:
		s.printf("%s = %s().to(%s)", name, s.className(m.Root), program.Literal(d))
	default:
		s.printf("%s = %s()", name, s.className(m.Root))
	}
	s.addAdapters(m)
	if s.job.Parallel.FSDP == nil { // fully_shard moves what it takes
		s.printf("%s.to(device)", name)
	}
}

// addAdapters prints the call that adds the adapters of a model.
func (s *script) addAdapters(m *program.Model) {
	a := m.Adapters
	more := ""
	if len(a.Modules) > 0 {
		more += ", modules=" + s.patterns(a.Modules, m)
	}
	if a.Bias != "none" {
		more += ", bias=" + program.Literal(a.Bias)
	}
	if !a.Kept {
		more += ", dtype=" + program.Literal(a.DType)
	}
	if a.Lower {
		more += ", lower=True"
	}
	if a.OnHost {
		s.freezeModel(m)
	}
	s.promptsToDevice(m)
	s.printf("add_adapters(%s, [", s.modelName(m.Name))
	parameters := false
	for _, g := range a.Groups { // those of parameters come last
		if ofParameters(g) && !parameters {
			s.line("], parameters=[")
			parameters = true
		}
		s.printf("    (%s, lambda layer: %s(%s)),", s.patterns(g.Layers, m), adapterOf(g.Layer.Layer).name, strings.TrimSuffix("layer, "+g.Args, ", "))
	}
	s.printf("]%s)", more)
	if a.Prompt != "" {
		s.printf("%s.%s.requires_grad_(True)", s.modelName(m.Name), a.Prompt)
	}
	if m.Loaded != nil {
		for _, c := range m.Loaded.Convert {
			if c.Copies {
				c.Modules = slices.Clone(c.Modules)
				for i := range c.Modules {
					c.Modules[i] += "." + program.ModulesToSave
				}
				s.conversion(m, s.modelName(m.Name), c)
			}
		}
	}
	s.fuse(m, s.modelName(m.Name))
}

// promptsToDevice prints what moves the module of virtual tokens to the device where the model is.
func (s *script) promptsToDevice(m *program.Model) {
	a, name := m.Adapters, s.modelName(m.Name)
	if a.Prompt == "" || m.Loaded == nil {
		return
	}
	s.printf("%s.%s = %[2]s.float()", name, a.Prompt)
	if a.Sampled {
		s.printf("ids = torch.zeros(%s.embedding.num_embeddings, dtype=torch.int64).to(device)", a.Prompt)
		s.printf("rows = %s.word_embeddings(ids).detach().clone()", name)
		s.line("rows = rows.float()")
		s.printf("%s.embedding.weight = nn.Parameter(rows)", a.Prompt)
		s.line("del ids, rows")
	}
	if !a.OnHost {
		s.printf("%s.to(device)", a.Prompt)
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
