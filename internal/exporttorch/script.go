package exporttorch

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Options change the script.
type Options struct {
	Steps int // steps to run; 3 if 0
}

// Write prints the script of a job.
func Write(w io.Writer, job *program.Job, o Options) error {
	if o.Steps == 0 {
		o.Steps = 3
	}
	s := &script{job: job}
	name := job.Name
	if name == "" {
		name = "a model"
	}
	s.printf("%q", name+": a training step, written by memplan export torch.")
	s.line("import json")
	if job.Determ {
		s.line("import os")
		s.line("")
		s.line(`os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic cuBLAS needs it before the first use`)
	}
	s.line("")
	s.line("import torch")
	s.line("import torch.nn as nn")
	s.line("import torch.nn.functional as F")
	s.classes()
	s.setup()
	s.step()
	s.loop(o.Steps)
	_, err := io.WriteString(w, s.b.String())
	return err
}

// script is the text under way.
type script struct {
	job    *program.Job
	b      strings.Builder
	indent int
	seen   map[*program.Class]bool
}

func (s *script) line(text string) {
	if text != "" {
		s.b.WriteString(strings.Repeat("    ", s.indent))
	}
	s.b.WriteString(text)
	s.b.WriteByte('\n')
}

func (s *script) printf(format string, args ...any) { s.line(fmt.Sprintf(format, args...)) }

// classes prints the blocks of the spec as classes, inner ones first.
func (s *script) classes() {
	s.seen = map[*program.Class]bool{}
	for _, m := range s.job.Models {
		s.class(m.Root)
	}
}

func (s *script) class(c *program.Class) {
	if s.seen[c] || (c.Python != "" && c.Python != "nn.Sequential") {
		return
	}
	s.seen[c] = true
	for _, ch := range c.Children {
		s.class(ch.Class)
	}
	if c.Name == "" {
		return
	}
	s.line("")
	s.line("")
	s.printf("class %s(nn.Module):", c.Name)
	s.indent++
	s.init(c)
	for _, f := range c.Methods {
		s.function(f, c)
	}
	s.function(c.Forward, c)
	s.indent--
}

// init prints __init__: own parameters, buffers, then submodules.
func (s *script) init(c *program.Class) {
	s.line("def __init__(self):")
	s.indent++
	s.line("super().__init__()")
	for _, p := range c.Params {
		s.printf("self.%s = nn.Parameter(torch.zeros(%s))", p.Name, sizes(p.Size))
	}
	for _, p := range c.Buffers {
		dtype := ""
		if p.Fixed {
			dtype = ", dtype=" + program.Literal(p.DType)
		}
		s.printf("self.register_buffer(%q, torch.zeros(%s%s))", p.Name, sizes(p.Size), dtype)
	}
	order := c.Registered()
	for i := 0; i < len(order); {
		ch := &c.Children[order[i]]
		name, index, isList := strings.Cut(ch.Path, ".")
		if !isList {
			s.printf("self.%s = %s", name, s.construct(ch.Class))
			i++
			continue
		}
		_ = index
		n := i
		for n < len(order) && strings.HasPrefix(c.Children[order[n]].Path, name+".") {
			n++
		}
		s.printf("self.%s = %s", name, s.moduleList(c, order[i:n]))
		i = n
	}
	for _, ch := range c.Children {
		for _, t := range ch.Ties {
			s.printf("self.%s.%s = self.%s", attr(ch.Path), attr(t.Param), attr(t.Source))
		}
	}
	s.indent--
}

// moduleList prints the items of a ModuleList; runs of equal items become a
// comprehension.
func (s *script) moduleList(c *program.Class, items []int) string {
	same := true
	for _, i := range items {
		same = same && s.construct(c.Children[i].Class) == s.construct(c.Children[items[0]].Class)
	}
	if same && len(items) > 2 {
		return fmt.Sprintf("nn.ModuleList([%s for _ in range(%d)])", s.construct(c.Children[items[0]].Class), len(items))
	}
	parts := make([]string, len(items))
	for k, i := range items {
		parts[k] = s.construct(c.Children[i].Class)
	}
	return s.wrapped("nn.ModuleList([", parts, "])")
}

// wrapped joins parts, on lines of their own if they are long.
func (s *script) wrapped(open string, parts []string, closing string) string {
	one := open + strings.Join(parts, ", ") + closing
	if len(one) < 100 && !strings.Contains(one, "\n") {
		return one
	}
	pad := strings.Repeat("    ", s.indent+1)
	for i, p := range parts {
		parts[i] = pad + strings.ReplaceAll(p, "\n", "\n    ")
	}
	return open + "\n" + strings.Join(parts, ",\n") + ",\n" + strings.Repeat("    ", s.indent) + closing
}

// construct prints the expression that makes a module.
func (s *script) construct(c *program.Class) string {
	switch {
	case c.Python == "nn.Sequential":
		parts := make([]string, len(c.Children))
		for i, ch := range c.Children {
			parts[i] = s.construct(ch.Class)
		}
		return s.wrapped("nn.Sequential(", parts, ")")
	case c.Name != "":
		return c.Name + "()"
	}
	return c.Python
}

func sizes(n []int64) string {
	if len(n) == 0 {
		return "()"
	}
	parts := make([]string, len(n))
	for i, v := range n {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ", ")
}

// attr writes a path of attributes and indices as Python: "blocks.0.fc" is
// blocks[0].fc.
func attr(path string) string {
	var b strings.Builder
	for i, p := range strings.Split(path, ".") {
		switch {
		case p != "" && strings.Trim(p, "0123456789") == "":
			b.WriteString("[" + p + "]")
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}

// setup prints what comes before the loop.
func (s *script) setup() {
	j := s.job
	s.line("")
	s.line("")
	s.line(`device = torch.device("cuda")`)
	if j.Determ {
		s.line("torch.use_deterministic_algorithms(True)")
	}
	to := "device"
	if j.DType != tensor.Float32 {
		to = "device=device, dtype=" + program.Literal(j.DType)
	}
	for _, m := range j.Models {
		s.printf("%s = %s().to(%s)", m.Name, m.Root.Name, to)
		if j.Inference != "" {
			s.printf("%s.eval()", m.Name)
		}
	}
	for _, o := range j.Optimizers {
		p := parameters(o)
		for _, g := range o.Given {
			p += fmt.Sprintf(", %s=%s", g.Name, program.Literal(g.Value))
		}
		s.printf("%s = %s(%s)", o.Name, o.Row.Signature().Python, p)
	}
	if j.Scaler {
		s.line(`scaler = torch.amp.GradScaler("cuda")`)
	}
	for _, ch := range j.Aux.Children {
		move := ""
		if len(ch.Class.Buffers) > 0 { // the weights of a loss
			move = ".to(" + to + ")"
		}
		s.printf("%s = %s%s", ch.Path, s.construct(ch.Class), move)
	}
	s.nextBatch()
	if j.Static {
		s.line("")
		s.line("")
		s.line("batch = next_batch()")
	}
}

// parameters are those that an optimizer steps.
func parameters(o *program.Optimizer) string {
	if len(o.Models) == 1 {
		return o.Models[0] + ".parameters()"
	}
	return "[p for m in (" + strings.Join(o.Models, ", ") + ") for p in m.parameters()]"
}

// nextBatch prints the function that makes a batch on the CPU and copies it.
func (s *script) nextBatch() {
	s.line("")
	s.line("")
	s.line("def next_batch():")
	s.indent++
	var names []string
	for _, in := range s.job.Inputs {
		names = append(names, in.Name+".to(device)")
		switch {
		case in.DType == tensor.Float32:
			s.printf("%s = torch.randn(%s)", in.Name, sizes(in.Size))
		case in.DType.IsFloating():
			s.printf("%s = torch.randn(%s, dtype=%s)", in.Name, sizes(in.Size), program.Literal(in.DType))
		default:
			s.printf("%s = torch.zeros(%s, dtype=%s)", in.Name, sizes(in.Size), program.Literal(in.DType))
		}
	}
	tail := ""
	if len(names) == 1 {
		tail = ","
	}
	s.printf("return %s%s", strings.Join(names, ", "), tail)
	s.indent--
}

// counter is the variable that counts steps: i, unless the step has a name like
// that.
func (s *script) counter() string {
	name := "i"
	for slices.Contains(s.job.Step.Slots, name) {
		name += "_"
	}
	return name
}

// step prints the step as a function, unless the loop is flat.
func (s *script) step() {
	if s.job.Flat {
		return
	}
	s.line("")
	s.line("")
	s.printf("def step(%s):", s.counter())
	s.indent++
	s.stepBody()
	s.indent--
}

func (s *script) stepBody() {
	f := &printer{script: s, fn: s.job.Step, class: s.job.Aux, self: ""}
	if s.job.Inference != "" {
		s.printf("with torch.%s():", s.job.Inference)
		s.indent++
		defer func() { s.indent-- }()
	}
	body := s.job.Step.Body
	for len(body) > 0 {
		n := 1
		for n < len(body) && body[n].Computes() == body[0].Computes() {
			n++
		}
		if s.job.Autocast && body[0].Computes() {
			s.printf(`with torch.autocast("cuda", dtype=%s):`, program.Literal(s.job.LowerType))
			s.indent++
			f.body(body[:n])
			s.indent--
		} else {
			f.body(body[:n])
		}
		body = body[n:]
	}
}

func (s *script) loop(steps int) {
	s.line("")
	s.line("")
	i := s.counter()
	s.printf("for %s in range(1, %d):", i, steps+1)
	s.indent++
	s.line("torch.cuda.reset_peak_memory_stats()")
	if s.job.Flat {
		s.stepBody()
	} else {
		s.printf("step(%s)", i)
	}
	s.line(`print(json.dumps({"step": ` + i + `, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))`)
	s.indent--
}

// function prints a method of a class.
func (s *script) function(f *program.Func, c *program.Class) {
	s.line("")
	params := append([]string{"self"}, f.Slots[:f.Params]...)
	s.printf("def %s(%s):", f.Name, strings.Join(params, ", "))
	s.indent++
	p := &printer{script: s, fn: f, class: c, self: "self."}
	if f.NoAutocast {
		s.line(`with torch.autocast("cuda", enabled=False):`)
		s.indent++
		defer func() { s.indent-- }()
	}
	p.body(f.Body)
	s.indent--
}
