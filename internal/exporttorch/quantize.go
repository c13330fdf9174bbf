package exporttorch

import (
	_ "embed"
	"fmt"
	"maps"
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
	//go:embed python/bnb_gemm.py
	bnbGemmPython string
)

// quantizedClasses prints the quantized layers.
func (s *script) quantizedClasses() {
	linear := []string{"nn.Linear"}
	var bits []int
	gemm := false
	for _, m := range s.job.Models {
		q := m.Quantized
		if q == nil {
			continue
		}
		bits = append(bits, q.Of.Bits)
		gemm = gemm || q.Of.Gemm
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
	if slices.Contains(bits, 4) {
		s.b.WriteString(bnb4bitPython)
	}
	if gemm {
		s.b.WriteString(bnbGemmPython)
	}
	if slices.Contains(bits, 8) {
		s.b.WriteString(bnb8bitPython)
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
	s.quantizedLayers(m)
	s.printf("%s.to(device)", name)
	if q.DType != s.job.DType {
		s.printf("for p in %s.parameters():", name)
		s.printf("    if p.is_floating_point() and p.dtype != %s:", program.Literal(s.job.DType))
		s.printf("        p.data = p.data.to(%s)", program.Literal(s.job.DType))
	}
}

// quantizedLayers prints what puts them in the place of others.
func (s *script) quantizedLayers(m *program.Model) {
	q := m.Quantized
	name := s.modelName(m.Name)
	args := s.patterns(q.Modules, m) + ", " + s.patterns(q.Except, m)
	switch {
	case q.Of.Bits == 8:
		s.printf("bnb_linear(%s, Linear8bitLt, %s, threshold=%s)", name, args, program.Literal(q.Of.Threshold))
	case q.Of.Gemm:
		rows := map[string]bool{}
		for _, p := range q.Layers {
			of := p.Class.Quantized
			rows[fmt.Sprintf("(%d, %d): %d", of.Out, of.In, of.Rows)] = true
		}
		s.line(s.wrapped("rows = {", slices.Sorted(maps.Keys(rows)), "}"))
		s.printf("bnb_linear(%s, Linear4bit, %s, compute_dtype=%s, double_quant=%s, storage=%s, rows=rows)", name, args, program.Literal(q.Of.Compute), program.Literal(q.Of.Double), program.Literal(q.Of.Storage))
	default:
		more := ""
		if q.Of.Storage != tensor.Uint8 {
			more = ", storage=" + program.Literal(q.Of.Storage)
		}
		if q.Of.Source != q.DType {
			more += ", half=True"
		}
		if q.Of.Keeps {
			more += ", keeps=True"
		}
		s.printf("bnb_linear(%s, Linear4bit, %s, compute_dtype=%s, double_quant=%s%s)", name, args, program.Literal(q.Of.Compute), program.Literal(q.Of.Double), more)
	}
}
