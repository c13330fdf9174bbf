package program

import "github.com/memplan/memplan/internal/tensor"

// Place is a module of a model in whose place another one is put once the model
// was made.
type Place struct {
	Path  string
	Class *Class
}

// BaseLayer is the child of a class that is put around a layer: the layer
// itself.
const BaseLayer = "base_layer"

// Magnitude is the child of a layer with DoRA that holds the norms of its weight.
const Magnitude = "lora_magnitude_vector"

// Adapters are the adapters of a model, as PEFT makes them: every parameter
// is frozen, layers are wrapped, and modules that are trained as a whole are
// copied. The class of a wrapped layer has BaseLayer as a child; all other
// parameters in it are the adapter's.
type Adapters struct {
	Layers []Place
	Saved  []Place // with the children original_module and modules_to_save
	Bias   string  // none, all or that of the wrapped layers alone
	OnHost bool    // they are made before the model is moved to the device
	DType  tensor.DType
	Kept   bool    // in place of DType they have the type in which they are made
	Fused  []Fused // modules whose layers and adapters one function computes
	// Regularized is by what the orthogonal regularization of AdaLoRA is multiplied; nil:
	// the loss has no such part.
	Regularized *float64
	// Prompt is the module that computes virtual tokens, which is trained and in no checkpoint;
	// "": there is none. Sampled: its first values are looked up in the model's embeddings.
	Prompt  string
	Sampled bool
	// Recurrent: each move to the device makes other buffers of recurrent layers. Accelerate
	// moves a model with its optimizer; Again: Trainer has moved one before that was there.
	Recurrent, Again bool
	Lower            bool // at last what is trained becomes bfloat16, as SFTTrainer has it for quantized weights
	Cast             bool // DeepSpeed's engine converts what is trained, once the adapters are there

	// For printing.
	Groups  []AdapterGroup
	Kernels []string // of Axolotl, which Fused is made by
	Modules Patterns // of the saved modules' paths
}

// AdapterType is the type in which the adapter of a layer is made: that of its weight, or
// in which it computes if it is quantized.
func (c *Class) AdapterType(weight tensor.DType) tensor.DType {
	switch q := c.Quantized; {
	case q != nil && q.Bits == 4:
		return q.Compute
	case q != nil:
		return tensor.Float32
	}
	return weight
}

// Fused is the forward of a module in place of its class's.
type Fused struct {
	Path    string
	Class   *Class
	Forward *Func
}

// AdapterGroup are layers whose adapters are made with the same arguments.
type AdapterGroup struct {
	Layers Patterns
	Layer  *Class // one of their classes
	Args   string // of the adapter's class, as Python
}

// OriginalModule and ModulesToSave are the children of a module that is trained
// as a whole: the frozen one, and its copy.
const (
	OriginalModule = "original_module"
	ModulesToSave  = "modules_to_save"
)
