package program

import (
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// Loading is how from_pretrained of transformers reads a model from its checkpoint.
// Parameters are declared in the type in which they train.
type Loading struct {
	DType    tensor.DType // of the weights
	OnDevice bool         // they are read to the GPU, not to host memory
	Stored   bool         // they are quantized in the checkpoint
	Convert  []Conversion // what follows, in this order
}

// Conversion converts the parameters of modules one by one, but for quantized weights.
type Conversion struct {
	Modules    Patterns // cover their paths
	Except     Patterns // cover those of modules that stay as they are
	DType      tensor.DType
	EmptyCache bool // then the cache is emptied
}

// Of reports whether the parameters of the module at a path are converted.
func (c *Conversion) Of(path string) bool { return c.Modules.Cover(path) && !c.Except.Cover(path) }

// All are the patterns of every module.
var All = Patterns{"*"}

// Converted is the type that conversions leave the parameters of a module in, whose path
// is one of these, or which shares them with one of these; false if no conversion is of it.
func Converted(list []Conversion, paths ...string) (d tensor.DType, ok bool) {
	for _, c := range list {
		if slices.ContainsFunc(paths, c.Of) {
			d, ok = c.DType, true
		}
	}
	return d, ok
}
