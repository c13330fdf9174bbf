package program

import "github.com/memplan/memplan/internal/tensor"

// Loading is how from_pretrained of transformers reads a model from its checkpoint.
// Parameters are declared in the type in which they train.
type Loading struct {
	DType    tensor.DType // of the weights
	OnDevice bool         // they are read to the GPU, not to host memory
	Stored   bool         // they are quantized in the checkpoint
	// Prepared says that parameters of 16 bits are converted to float32 then
	// (peft.prepare_model_for_kbit_training), EmptyCache that the cache is emptied after.
	Prepared, EmptyCache bool
}

// Trained is the type in which parameters are declared: that of the load, or float32.
func (l *Loading) Trained() tensor.DType {
	if l.Prepared {
		return tensor.Float32
	}
	return l.DType
}
