package exporttorch

import (
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// nextBatch prints the function that makes a batch on the CPU and, unless the
// step does, copies it; ahead says that the copy does not wait.
func (s *script) nextBatch(function string, inputs []program.Input, ahead bool) {
	s.line("")
	s.line("")
	s.scope(nil, func() { s.batch(function, inputs, ahead) })
}

// move copies a tensor of a batch to the device.
func (s *script) move(in program.Input, how string) string {
	if f := in.Format(s.job); f != "" {
		how += ", memory_format=" + program.Literal(f)
	}
	return ".to(device" + how + ")"
}

func (s *script) batch(function string, inputs []program.Input, ahead bool) {
	s.printf("def %s():", function)
	s.indent++
	var names []string
	for _, in := range inputs {
		name := s.stepName(in.Name)
		switch {
		case ahead:
			names = append(names, name+".pin_memory()"+s.move(in, ", non_blocking=True"))
		case s.job.Rebind:
			names = append(names, name)
		default:
			names = append(names, name+s.move(in, ""))
		}
		switch b, read := s.batches[function]; {
		case read:
			n := b.Count * tensor.D(in.Size...).Numel()
			s.printf("%s = torch.from_file(%q, size=%d, dtype=%s).view(%s)[%s.number %% %d]", name, b.Files[in.Name], n, program.Literal(in.DType),
				sizes(append([]int64{b.Count}, in.Size...)), function, b.Count)
		case in.DType == tensor.Float32:
			s.printf("%s = torch.randn(%s)", name, sizes(in.Size))
		case in.DType.IsFloating():
			s.printf("%s = torch.randn(%s, dtype=%s)", name, sizes(in.Size), program.Literal(in.DType))
		default:
			s.printf("%s = torch.zeros(%s, dtype=%s)", name, sizes(in.Size), program.Literal(in.DType))
		}
	}
	tail := ""
	if len(names) == 1 {
		tail = ","
	}
	_, read := s.batches[function]
	if read {
		s.printf("%s.number += 1", function)
	}
	s.printf("return %s%s", strings.Join(names, ", "), tail)
	s.indent--
	if read {
		s.line("")
		s.line("")
		s.printf("%s.number = 0", function)
	}
}
