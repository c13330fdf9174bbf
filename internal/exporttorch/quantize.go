package exporttorch

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// What stands for bitsandbytes in a script, so that it needs PyTorch alone: its
// kernels are replaced by tensors like those that they write into.
var (
	//go:embed python/bnb.py
	bnbPython string
	//go:embed python/bnb4bit.py
	bnb4bitPython string
	//go:embed python/bnb8bit.py
	bnb8bitPython string
)

// quantizedClasses prints the quantized layers.
func (s *script) quantizedClasses() {
	linear := []string{"nn.Linear"}
	var bits []int
	for _, m := range s.job.Models {
		q := m.Quantized
		if q == nil {
			continue
		}
		bits = append(bits, q.Of.Bits)
		m.Root.Walk(func(_ string, c *program.Class) {
			if c.Layer == nn.Conv1D && !slices.Contains(linear, s.className(c)) {
				linear = append(linear, s.className(c))
			}
		})
	}
	if len(bits) == 0 {
		return
	}
	s.b.WriteString(bnbPython)
	for n, text := range map[int]string{4: bnb4bitPython, 8: bnb8bitPython} {
		if slices.Contains(bits, n) {
			s.b.WriteString(text)
		}
	}
	s.line("")
	s.line("")
	s.printf("LINEAR = (%s,)", strings.Join(linear, ", "))
}

// construction prints what makes a model whose layers are quantized and moves
// it to the GPU.
func (s *script) construction(m *program.Model) {
	q := m.Quantized
	name := s.modelName(m.Name)
	s.printf("%s = %s()", name, s.className(m.Root))
	if m.Pruned != nil {
		s.pruning(m)
	}
	switch {
	case q.DType != s.job.DType: // buffers keep their type
		s.printf("for p in %s.parameters():", name)
		s.printf("    p.data = p.data.to(%s)", program.Literal(q.DType))
	case q.DType != tensor.Float32:
		s.printf("%s.to(%s)", name, program.Literal(q.DType))
	}
	args := s.patterns(q.Modules, m) + ", " + s.patterns(q.Except, m)
	if q.Of.Bits == 4 {
		s.printf("bnb_linear(%s, Linear4bit, %s, compute_dtype=%s, double_quant=%s)", name, args, program.Literal(q.Of.Compute), program.Literal(q.Of.Double))
	} else {
		s.printf("bnb_linear(%s, Linear8bitLt, %s, threshold=%s)", name, args, program.Literal(q.Of.Threshold))
	}
	s.printf("%s.to(device)", name)
	if q.DType != s.job.DType {
		s.printf("for p in %s.parameters():", name)
		s.printf("    if p.is_floating_point() and p.dtype != %s:", program.Literal(s.job.DType))
		s.printf("        p.data = p.data.to(%s)", program.Literal(s.job.DType))
	}
}
