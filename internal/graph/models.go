package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// model is a model of the spec before and after it is elaborated.
type model struct {
	name      string
	def       *spec.Model
	shrunk    *techniques.Shrinking // structured pruning; nil: none
	use       *spec.Model           // as the job's own spec writes it; def, unless that is a preset's
	spec      *spec.Spec            // that defines it: the spec, or a preset
	at        spec.Span
	hfType    string      // model_type of a Hugging Face model; "" of any other
	deviation float64     // of its first weights; 0: as torch.nn
	inputs    []string    // of forward
	loaded    *hf.Weights // nil: they are not read from a checkpoint
	class     *program.Class
	calls     map[string][]value.Value // results by inputs
	lost      map[string]bool          // inputs with which there were mistakes

	helps   bool           // the job trains others with it: a teacher, the reference of DPOTrainer
	eval    bool           // in eval mode
	trained *program.Class // class, while an evaluation is elaborated
}

// loading is how the model is read, for the program.
func (m *model) loading() *program.Loading {
	w := m.loaded
	if w == nil {
		return nil
	}
	return &program.Loading{DType: w.DType, Made: w.Read, OnDevice: w.OnDevice, Auto: w.Auto, Stored: w.Stored, Quantize: w.Quantize != nil && !w.Stored, Names: w.Names, Float32: w.Float32, Convert: w.Convert}
}

// fromStep reports whether an input comes from the step, not from a batch.
func (m *model) fromStep(name string) bool {
	return slices.ContainsFunc(m.def.Inputs, func(in *spec.Named[spec.Input]) bool { return in.Name.V == name && in.V.From.V == spec.FromStep })
}

// checkpointed are the modules that the model itself names.
func (m *model) checkpointed() program.Patterns {
	var out program.Patterns
	for _, s := range m.def.Checkpoint {
		out = append(out, s.V)
	}
	return out
}

// visible are the blocks by their names that the file at work may call: its own, and
// those of a model, if there is one.
func (el *elaborator) visible(m *spec.Model) map[string]*spec.Named[spec.Block] {
	blocks := map[string]*spec.Named[spec.Block]{}
	for _, b := range el.spec.Blocks {
		blocks[b.Name.V] = b
	}
	if m != nil {
		for _, b := range m.Blocks {
			blocks[b.Name.V] = b
		}
	}
	return blocks
}

// in runs f in the file that defines b.
func (el *elaborator) in(b *spec.Named[spec.Block], f func()) {
	if b.V.Of == nil {
		f()
		return
	}
	el.as(&model{spec: b.V.Of}, f)
}

// as runs f in the file that defines m: names and errors are that file's.
func (el *elaborator) as(m *model, f func()) {
	outer, errs := el.spec, el.errs
	el.spec, el.errs = m.spec, m.spec.Errs
	defer func() { el.spec, el.errs = outer, errs }()
	f()
}

// inLoop runs f in the file with the job's statements: the spec, or the loop of its
// trainer.
func (el *elaborator) inLoop(f func()) {
	if el.loop == nil {
		f()
		return
	}
	el.as(&model{spec: el.loop}, f)
}

func (el *elaborator) findModel(name string) *model {
	for _, m := range el.ms {
		if m.name == name {
			return m
		}
	}
	return nil
}

func (el *elaborator) modelNames() []string {
	var names []string
	for _, m := range el.ms {
		names = append(names, m.name)
	}
	return names
}

// inFile is a place of a file.
type inFile struct {
	file *spec.Errors
	at   spec.Span
}

// isBad reports whether mistakes were found in an entry when it was read or
// checked. A loss is read once more for the step, so that the place decides.
func (el *elaborator) isBad(e *spec.Entry) bool { return e.Bad || el.bad[inFile{el.errs, e.At}] }
