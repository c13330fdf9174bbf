package exporttorch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// roots are the classes of which a process makes one for a model.
func (s *script) roots(m *program.Model) []*program.Class {
	pl := s.job.Parallel.Pipeline
	if pl == nil {
		return []*program.Class{m.Root}
	}
	var out []*program.Class
	for i := range pl.Stages {
		out = append(out, pl.Stages[i].Class)
	}
	return out
}

// made prints the construction of a model.
func (s *script) made(m *program.Model) string {
	if pl := s.job.Parallel.Pipeline; pl != nil {
		return "stages[" + s.stageIndex(slices.Index(s.job.Models, m)) + "]()"
	}
	return s.className(m.Root) + "()"
}

// stages prints the list of the stages' classes.
func (s *script) stages(pl *program.Pipeline) {
	names := make([]string, len(pl.Stages))
	for i := range pl.Stages {
		names[i] = s.className(pl.Stages[i].Class)
		if takes := pl.Stages[i].Takes; takes != nil {
			parts := make([]string, len(takes))
			for k, b := range takes {
				parts[k] = fmt.Sprintf("torch.empty_strided(%s, %s, dtype=%s)", pythonTuple(b.Size.Slice()), pythonTuple(b.Stride.Slice()), program.Literal(b.DType))
			}
			s.printf("# Stage %d receives %s", i, strings.Join(parts, ", "))
		}
	}
	s.printf("stages = [%s]", strings.Join(names, ", "))
}

// pythonTuple prints a tuple of integers.
func pythonTuple(of []int64) string {
	if len(of) == 1 {
		return fmt.Sprintf("(%d,)", of[0])
	}
	return "(" + sizes(of) + ")"
}

// schedule prints PipelineStage and the schedule.
func (s *script) schedule() {
	pl := s.job.Parallel.Pipeline
	if pl == nil {
		return
	}
	s.line("")
	s.line("")
	parts := make([]string, len(s.job.Models))
	group := ""
	if s.job.Parallel.Copied() {
		group = `, group=mesh.get_group("pp")`
	}
	for i, m := range s.job.Models {
		parts[i] = fmt.Sprintf("PipelineStage(%s, %s, %d, device%s)", s.modelName(m.Name), s.stageIndex(i), len(pl.Stages), group)
	}
	stages := parts[0]
	if pl.Loops() {
		stages = s.wrapped("[", parts, "]")
	}
	s.printf("schedule = %s(%s, %d, %s)", pl.Schedule, stages, pl.Microbatches, s.functionName(pl.Loss))
}

// stageIndex prints the index of the i-th stage of a process.
func (s *script) stageIndex(i int) string {
	if i == 0 {
		return s.pipelineRank()
	}
	return fmt.Sprintf("%s + %d", s.pipelineRank(), i*int(s.job.Parallel.Pipeline.Ranks))
}

// pipelineRank prints which stage a process has, or the first of several.
func (s *script) pipelineRank() string {
	if s.job.Parallel.Copied() {
		return `mesh.get_local_rank("pp")`
	}
	return "dist.get_rank()"
}

// pipelineMesh prints the mesh of the stages' copies.
func (s *script) pipelineMesh() {
	if p := &s.job.Parallel; p.Copied() {
		s.printf(`mesh = init_device_mesh("cuda", (%d, %d), mesh_dim_names=("pp", "dp"))`, p.Pipeline.Ranks, p.Copies())
	}
}

// scheduleStep prints schedule.step, which takes other tensors in each stage.
func (p *printer) scheduleStep(st *program.Stmt) {
	pl := p.job.Parallel.Pipeline
	losses := p.local(st.Targets[0])
	p.printf("%s = []", losses)
	calls := make([]string, pl.Ranks)
	for i := range calls {
		stage := &pl.Stages[i]
		var args []string
		for k, slot := range stage.Inputs {
			name := p.local(slot)
			if i > 0 {
				name = p.variable(stage.Class.Forward, stage.Received+k) + "=" + name
			}
			args = append(args, name)
		}
		first := args
		var named []string
		if i > 0 {
			first, named = nil, args
		}
		args = append(append(slices.Clone(first), "target="+p.local(pl.Target), "losses="+losses), named...)
		calls[i] = "schedule.step(" + strings.Join(args, ", ") + ")"
	}
	word := "if"
	for i := 0; i < len(calls); {
		n := i + 1
		for n < len(calls) && calls[n] == calls[i] {
			n++
		}
		switch {
		case i == 0 && n == len(calls):
			p.line(calls[i])
			return
		case n == len(calls):
			p.line("else:")
		case n == i+1:
			p.printf("%s %s == %d:", word, p.pipelineRank(), i)
		default:
			p.printf("%s %s < %d:", word, p.pipelineRank(), n)
		}
		word = "elif"
		p.indent++
		p.line(calls[i])
		p.indent--
		i = n
	}
}

// numbered are the lists of modules of a stage that keep the numbers that they have in the whole
// model, and so are dictionaries: those that do not begin with 0.
func numbered(c *program.Class) map[string]bool {
	count, out := map[string]int{}, map[string]bool{}
	seen := map[string]bool{}
	for _, i := range c.Registered() {
		parts := strings.Split(c.Children[i].Path, ".")
		for k := 1; k < len(parts); k++ {
			list, item := strings.Join(parts[:k], "."), strings.Join(parts[:k+1], ".")
			n, err := strconv.Atoi(parts[k])
			if err != nil || seen[item] {
				continue
			}
			seen[item] = true
			out[list] = out[list] || n != count[list]
			count[list]++
		}
	}
	return out
}

// isStage reports whether a class is that of a stage.
func (s *script) isStage(c *program.Class) bool {
	pl := s.job.Parallel.Pipeline
	return pl != nil && slices.ContainsFunc(pl.Stages, func(st program.Stage) bool { return st.Class == c })
}
