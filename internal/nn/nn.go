// Package nn is the identity of modules that are not the spec's own: those of
// torch.nn, and those of libraries that a job puts in their place. A class of a
// program points to its layer. What other packages must know of a module they
// ask of the layer; its name is for printing, and a block of the spec that
// happens to have it is another thing.
package nn

import "strings"

// Layer is what the modules of one constructor have in common.
type Layer struct {
	Python string // the constructor: nn.Linear; "" of one that has no name in reports

	Linear bool // multiplies by a weight, as nn.Linear: what PEFT and bitsandbytes take for a linear layer
	Conv   int  // dimensions of the space of a convolution, not a transposed one; 0: it is none
	Table  bool // looks up rows, as nn.Embedding
	Batch  bool // normalizes by the statistics of a batch
	Apart  bool // works on parts of a sequence apart: what SequenceParallel is modelled of
	// Running says that its buffers, if it has some, are statistics that each forward
	// pass in training updates.
	Running bool
	// Whole says that its forward hands the parameters of modules in it to a
	// function and does not call them.
	Whole bool

	// Init are the rules by which its parameters get their first values, by their
	// names, "*" for every other: reset_parameters in torch/nn/modules. What has
	// no rule starts as zeros.
	Init map[string]Init
}

// Kind is the name of the layer as reports show it: Linear for nn.Linear.
func (l *Layer) Kind() string { return l.Python[strings.LastIndexByte(l.Python, '.')+1:] }

// Layers that no constructor of a spec's own entries makes.
var (
	Sequential = &Layer{Python: "nn.Sequential"}

	// OutProj is a part of nn.MultiheadAttention that only its parameters are used
	// of; its bias starts as zeros (torch/nn/modules/activation.py).
	OutProj = &Layer{Init: map[string]Init{"weight": kaimingWeight}}

	// Conv1D of transformers is a linear layer whose weight lies the other way
	// round. Blocks stand for it.
	Conv1D = &Layer{Python: "Conv1D", Linear: true}

	// LinearOf is a subclass of nn.Linear with a forward of its own. Blocks stand for it.
	LinearOf = &Layer{Python: "Linear", Linear: true}

	// Of bitsandbytes. What they stand for is an nn.Linear.
	Linear4bit = &Layer{Python: "Linear4bit", Linear: true, Init: Kaiming}
	Linear8bit = &Layer{Python: "Linear8bitLt", Linear: true, Init: Kaiming}

	// Of PEFT.
	LoraLinear     = &Layer{Python: "LoraLinear"}
	LoraLinear4bit = &Layer{Python: "LoraLinear4bit"}
	LoraLinear8bit = &Layer{Python: "LoraLinear8bit"}
	LoraConv       = [...]*Layer{1: {Python: "LoraConv1d"}, 2: {Python: "LoraConv2d"}, 3: {Python: "LoraConv3d"}} // by dimensions
	LoraEmbedding  = &Layer{Python: "LoraEmbedding", Init: map[string]Init{"lora_embedding_B": unit}}
	LoraParameter  = &Layer{Python: "LoraParameter"}
	DoraLinear     = &Layer{Python: "DoraLinear"}
	DoraLinear4bit = &Layer{Python: "DoraLinear4bit"}
	DoraMagnitude  = &Layer{Python: "DoraMagnitude", Init: Ones}
	IA3Linear      = &Layer{Python: "IA3Linear", Init: map[string]Init{"ia3_l": ones}}
	IA3Feedforward = &Layer{Python: "IA3Feedforward", Init: map[string]Init{"ia3_l": ones}}
	OFTLinear      = &Layer{Python: "OFTLinear", Init: map[string]Init{"oft_R": unit}}
	OFTQuantized   = &Layer{Python: "OFTQuantized", Init: map[string]Init{"oft_R": unit}}
	BOFTLinear     = &Layer{Python: "BOFTLinear", Init: map[string]Init{"boft_R": unit, "boft_s": ones}}
	SVDLinear      = &Layer{Python: "SVDLinear", Init: map[string]Init{"lora_A": unit, "lora_B": unit, "ranknum": ones}}
	SVDLinear4bit  = &Layer{Python: "SVDLinear4bit", Init: SVDLinear.Init}
	SVDLinear8bit  = &Layer{Python: "SVDLinear8bit", Init: SVDLinear.Init}
	ModulesToSave  = &Layer{Python: "ModulesToSave"}
)
