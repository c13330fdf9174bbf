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

// Adapters are the LoRA adapters of a model, as PEFT makes them: every parameter
// is frozen, layers are wrapped, and modules that are trained as a whole are
// copied.
type Adapters struct {
	Layers []Place // with BaseLayer and the children lora_A and lora_B
	Saved  []Place // with the children original_module and modules_to_save
	DType  tensor.DType
	Bias   string // none, all or lora_only

	// For printing.
	Linear          bool     // linear layers alone are targeted
	Targets, Except Patterns // of the layers' paths
	Modules         Patterns // of the saved modules' paths
	R               int64
	Alpha, Dropout  float64
}

// OriginalModule and ModulesToSave are the children of a module that is trained
// as a whole: the frozen one, and its copy.
const (
	OriginalModule = "original_module"
	ModulesToSave  = "modules_to_save"
)
