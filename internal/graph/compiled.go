package graph

import (
	"bytes"

	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/tensor"
)

// maxGraphNotes is how many graphs are named one by one.
const maxGraphNotes = 8

// compiled says what the graphs allocate of which train.compile names the code.
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
	var saved tensor.Bytes
	for i, g := range graphs {
		if !g.Backward() {
			saved += g.Returns
		}
		if i < maxGraphNotes {
			el.notModelled = append(el.notModelled, note.CompiledGraph.New("train.compile: graph %s (%s:%d) allocates %v at its peak, in %d blocks, and hands on %v", graphName(g), name, g.Line, g.Peak, g.Allocs, g.Returns).Of("train.compile"))
		}
	}
	el.notModelled = append(el.notModelled, note.CompiledGraph.New("train.compile: the forward graphs, of %d in all, hand on %v of what they allocate, results and what backward graphs need; in eager mode that is what is saved for the backward pass", len(graphs), saved).Of("train.compile"))
}

func graphName(g *inductor.Graph) string {
	if g.Name == "" {
		return "without a name"
	}
	return g.Name
}
