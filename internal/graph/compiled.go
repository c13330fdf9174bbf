package graph

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// maxGraphNotes is how many graphs are named one by one.
const maxGraphNotes = 8

// compiled reads the graphs of which train.compile names the code.
func (el *building) compiled() {
	s := el.spec
	name, at := s.OutputCode()
	switch {
	case name == "":
		return
	case el.opts.ReadFile == nil:
		s.Errs.Addf(at, "output_code: there are no files here")
		return
	}
	text, err := el.opts.ReadFile(name)
	if err != nil {
		s.Errs.Addf(at, "output_code: %v", err)
		return
	}
	graphs, err := inductor.Read(name, bytes.NewReader(text))
	if err != nil {
		s.Errs.Addf(at, "output_code: %v", err)
		return
	}
	el.graphs = &program.Compiled{File: name, Graphs: graphs}
}

// replay lets the engine play the compiled graphs in the place of the model, and says
// what they allocate and what stays unknown.
func (el *building) replay(r *Result) {
	c := el.graphs
	if c == nil {
		return
	}
	add := func(format string, args ...any) {
		r.NotModelled = append(r.NotModelled, note.CompiledGraph.New("train.compile: "+format, args...).Of("train.compile"))
	}
	var saved tensor.Bytes
	symbolic := false
	for i, g := range c.Graphs {
		symbolic = symbolic || g.Symbolic
		if !g.Backward() {
			saved += g.Returns
		}
		if i < maxGraphNotes && !g.Symbolic {
			add("graph %s (%s:%d) allocates %v at its peak, in %d blocks, and hands on %v", graphName(g), c.File, g.Line, g.Peak, g.Allocs, g.Returns)
		}
	}
	if !symbolic {
		add("the forward graphs, of %d in all, hand on %v of what they allocate, results and what backward graphs need; in eager mode that is what is saved for the backward pass", len(c.Graphs), saved)
	}
	if why := el.eager(); why != "" {
		add("the graphs are not played in the place of the model: %s", why)
		return
	}
	r.Job.Models[0].Compiled = c
	r.NotModelled = slices.DeleteFunc(r.NotModelled, func(n note.Note) bool { return n.Code == note.Compiled })
	add("the graphs are played in the place of the model's forward and backward passes; what is measured while it compiles (autotuning, padding of matrices) and CUDA graphs (mode reduce-overhead) are not modelled")
	if len(c.Graphs) > 2 {
		add("what Python does between graphs is not modelled: tensors that a graph returns live to the end of the model's call")
	}
}

// eager is why the model is played as if it was not compiled; "": it is not.
func (el *building) eager() string {
	job := el.job
	switch m := job.Models[0]; {
	case len(job.Models) > 1:
		return "the job has several models"
	case m.Adapters != nil || m.Quantized != nil:
		return "the model has adapters, or weights of few bits"
	case job.Parallel.DDP != nil || job.Parallel.FSDP != nil:
		return "DistributedDataParallel and FSDP2 divide graphs in their own way"
	case job.Offload != program.Offload{}:
		return "of a model that is offloaded"
	}
	trains := false
	for _, g := range el.graphs.Graphs {
		trains = trains || g.Backward()
		if g.Forward() && inductor.BackwardOf(el.graphs.Graphs, g) == nil {
			return fmt.Sprintf("the graph of the backward pass of %s (%s:%d) is not in the log; let it contain a whole step", g.Name, el.graphs.File, g.Line)
		}
	}
	if !trains {
		return "the log has no graph of a backward pass; let it contain a whole step"
	}
	return ""
}

func graphName(g *inductor.Graph) string {
	if g.Name == "" {
		return "without a name"
	}
	return g.Name
}
