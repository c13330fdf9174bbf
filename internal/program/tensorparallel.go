package program

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// Placement says how a DTensor lies on the ranks: whole on each, or divided along
// a dimension (torch.distributed.tensor.Replicate, Shard).
type Placement struct {
	Shard bool
	Dim   int // of Shard; counted from the end if negative
}

// Python prints a placement.
func (p Placement) Python() string {
	if !p.Shard {
		return "Replicate()"
	}
	return fmt.Sprintf("Shard(%d)", p.Dim)
}

// Of is the placement of a tensor of that rank, its dimension counted from the
// front.
func (p Placement) Of(rank int) Placement {
	if p.Shard && p.Dim < 0 {
		p.Dim += rank
	}
	return p
}

// Styles of parallelize_module (torch.distributed.tensor.parallel).
const (
	Colwise  = "colwise"
	Rowwise  = "rowwise"
	Sequence = "sequence"

	PrepareInput  = "prepare_input"
	PrepareOutput = "prepare_output"
)

// Style is how parallelize_module spreads a module over the ranks.
type Style struct {
	Name          string
	Input, Output *Placement // input_layouts, output_layouts; nil: the style's own
	Local         bool       // use_local_output: what comes out is a rank's part, not a DTensor

	Prepared []Prepared // of PrepareInput and PrepareOutput
}

// Prepared is what becomes of an input or a result of a module: a DTensor that lies so,
// unless it is one, which then gets the desired placement.
type Prepared struct {
	As, Desired *Placement // nil As: it is left as it is
}

// Prepares reports whether the style changes how values lie, and no module.
func (s *Style) Prepares() bool { return s.Name == PrepareInput || s.Name == PrepareOutput }

// sequenceDim is the dimension in which SequenceParallel divides.
const sequenceDim = 1

// Arrives is the placement that a module's input is taken to have.
func (s *Style) Arrives() Placement {
	switch {
	case s.Input != nil:
		return *s.Input
	case s.Name == Rowwise:
		return Placement{true, -1}
	case s.Name == Sequence:
		return Placement{true, sequenceDim}
	}
	return Placement{}
}

// Computes is the placement of the input that the module itself works with; table
// says that it is an embedding.
func (s *Style) Computes(table bool) Placement {
	switch {
	case s.Name == Rowwise && !table:
		return Placement{true, -1}
	case s.Name == Sequence:
		return Placement{true, sequenceDim}
	}
	return Placement{}
}

// Redistributes reports whether the hook changes the placement of a DTensor that
// comes in. But for a sequence it goes by the placement that inputs are said to have.
func (s *Style) Redistributes(arrives, computes, at Placement, rank int) bool {
	if s.Name == Sequence {
		return at != computes.Of(rank)
	}
	return arrives.Of(rank) != computes.Of(rank)
}

// Gives is the placement of what the module computes; of partial ones each rank
// has a summand.
func (s *Style) Gives() (at Placement, partial bool) {
	switch s.Name {
	case Colwise:
		return Placement{true, -1}, false
	case Rowwise:
		return Placement{}, true
	}
	return Placement{true, sequenceDim}, false
}

// Returns is the placement of the module's result.
func (s *Style) Returns() Placement {
	if s.Output != nil {
		return *s.Output
	}
	at, _ := s.Gives()
	return at
}

// Divides is the dimension along which a parameter is divided; no if each rank has
// it whole.
func (s *Style) Divides(param string, table bool) (dim int, divided bool) {
	switch {
	case s.Name == Colwise && table:
		return 1, true
	case s.Name == Colwise:
		return 0, true
	case s.Name == Rowwise && table:
		return 0, true
	case s.Name == Rowwise:
		return 1, param == "weight"
	}
	return 0, false
}

// TP are the modules to which parallelize_module is applied, in the order of the
// calls.
type TP struct {
	Ranks   int64 // over which modules are divided: the innermost dimension of the mesh
	Modules []Parallelized
	Loss    bool // steps run in loss_parallel
}

// Parallelized is a module with its style.
type Parallelized struct {
	Path string
	Style
}

// Redistributed is the size of a rank's part of a tensor whose placement changes.
func Redistributed(size tensor.Dims, from, to Placement, ranks int64) tensor.Dims {
	out := size.Slice()
	if from = from.Of(len(out)); from.Shard {
		out[from.Dim] *= ranks
	}
	if to = to.Of(len(out)); to.Shard {
		out[to.Dim] /= ranks
	}
	return tensor.D(out...)
}
