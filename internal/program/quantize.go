package program

import (
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// Quantized says how a linear layer's weight is stored (bitsandbytes).
type Quantized struct {
	In, Out int64
	Bits    int
	Type    string       // of four bits: nf4 or fp4
	Double  bool         // of four bits: the blocks' maxima are quantized, too
	Compute tensor.DType // of four bits: in which the product is computed
	// Threshold is LLM.int8()'s: inputs beyond it are computed in 16 bit; 0: none.
	Threshold float64
	Source    tensor.DType // of the weight before
	Storage   tensor.DType // of four bits: of the packed weight
	// Transposed says that the weight lies the other way round before (Conv1D).
	Transposed bool
	// Gemm says that the product is bitsandbytes' own operator (gemm_4bit, since 0.50),
	// Rows up to how many rows of the input it does without the whole weight.
	Gemm bool
	Rows int64
	// Keeps says that the product keeps its input as long as the graph lives, though the
	// weight wants no gradient (bitsandbytes before 0.43.2).
	Keeps bool
}

// Quantization replaces linear layers of a model before it is moved to the
// device, which quantizes them.
type Quantization struct {
	Layers []Place
	Of     Quantized    // what all layers share
	DType  tensor.DType // in which the model is loaded; then its parameters are converted

	Modules, Except Patterns // of the layers' paths, for printing
}

// quantizes reports whether the parameter at a path is a weight that is
// quantized.
func (m *Model) quantizes(path string) bool {
	return m.Quantized != nil && slices.ContainsFunc(m.Quantized.Layers, func(p Place) bool { return path == p.Path+".weight" })
}
