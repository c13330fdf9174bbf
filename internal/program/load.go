package program

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Loading is how from_pretrained of transformers reads a model from its checkpoint.
// Parameters are declared in the type in which they train.
type Loading struct {
	DType    tensor.DType // of the weights
	Made     tensor.DType // in which from_pretrained makes the model, under DeepSpeed's engine
	OnDevice bool         // they are read to the GPU, not to host memory
	Auto     bool         // accelerate infers the device_map, and asks for the memory of the GPU
	Stored   bool         // they are quantized in the checkpoint
	Quantize bool         // they are quantized while they are read
	Without  string       // a module that is in no checkpoint; "": there is none
	Names    *Names       // of the checkpoint; nil: the model's
	Float32  []string     // parts of the names of tensors that are read in float32
	Convert  []Conversion // what follows, in this order
}

// Names are those of a checkpoint where they are not the model's.
type Names struct {
	Renamed [][2]string // runs of parts of names: the model's, and the checkpoint's
	Experts []string    // the weights of one expert, the last of which is its down_proj; nil: experts are joined there, too
}

// Stored is the name that the checkpoint has for a tensor of the model.
func (n *Names) Stored(name string) string {
	if n == nil {
		return name
	}
	name = "." + name + "."
	for _, r := range n.Renamed {
		name = strings.Replace(name, "."+r[0]+".", "."+r[1]+".", 1)
	}
	return name[1 : len(name)-1]
}

// Joins are the names of the weights of one expert that a parameter of a module is made of;
// nil: the checkpoint has the parameter as it is.
func (n *Names) Joins(module string, p *Param) []string {
	if n == nil || len(n.Experts) == 0 || len(p.Size) != 3 || module != "experts" && !strings.HasSuffix(module, ".experts") {
		return nil
	}
	last := len(n.Experts) - 1
	if p.Name == "down_proj" {
		return n.Experts[last:]
	}
	return n.Experts[:last]
}

// Conversion converts the parameters of modules one by one, but for quantized weights.
type Conversion struct {
	Modules    Patterns // cover their paths
	Except     Patterns // cover those of modules that stay as they are
	DType      tensor.DType
	Copies     bool // of the copies alone that PEFT makes of them
	EmptyCache bool // then the cache is emptied
	Engine     bool // by DeepSpeed's engine, when adapters are there
}

// Of reports whether the parameters of the module at a path are converted.
func (c *Conversion) Of(path string) bool { return c.Modules.Cover(path) && !c.Except.Cover(path) }

// All are the patterns of every module.
var All = Patterns{"*"}

// Converted is the type that conversions leave the parameters of a module in, whose path
// is the last of these, or which shares them with one of these; false if no conversion is of it.
// Copies share nothing.
func Converted(list []Conversion, paths ...string) (d tensor.DType, ok bool) {
	for _, c := range list {
		of := paths
		if c.Copies {
			of = paths[len(paths)-1:]
		}
		if slices.ContainsFunc(of, c.Of) {
			d, ok = c.DType, true
		}
	}
	return d, ok
}
