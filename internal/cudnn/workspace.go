package cudnn

import "github.com/memplan/memplan/internal/tensor"

// Workspace says what a convolution of cuDNN takes from the caching
// allocator while it runs. The zero value is nothing.
//
// PyTorch runs the first plan of cuDNN's heuristics that works. It allocates the
// plan's workspace when results and copies of operands are there, and frees it
// when the kernel is launched; a plan whose workspace does not fit is passed over
// (aten/src/ATen/native/cudnn/Conv_v8.cpp: run_conv_plan, try_configs). Which plan
// that is depends on shape, GPU and version of cuDNN and is documented nowhere.
// What is known is how kernels work: those for tensor cores want images in
// channels-last layout and convert others inside the workspace (NVIDIA's
// "Convolutional Layers User's Guide", tensor layouts in memory). ConvWorkspaces
// says for each kind of convolution which of its tensors that concerns.
type Workspace struct {
	Model bool            // what the tables expect
	TF32  *ConvWorkspaces // in place of the table of float32 convolutions
	Bytes tensor.Bytes    // without Model: this many for each convolution
}

// ConvKernel is one of the three computations of a convolution.
type ConvKernel uint8

// The kernels.
const (
	Fprop ConvKernel = iota // images, filter → results
	Dgrad                   // results' gradient, filter → images' gradient
	Wgrad                   // images, results' gradient → filter's gradient
)

// ConvKind is what decides how a convolution is computed.
type ConvKind uint8

// The kinds.
const (
	ConvDense     ConvKind = iota
	ConvPointwise          // of size 1: a matrix product on the images as they lie
	ConvGrouped            // several groups
	ConvFirst              // at most fewChannels input channels, as in a first layer
	ConvKinds              // how many there are
)

// fewChannels is what one 16-byte load of float32 holds.
const fewChannels = 4

// Conversion is which of images and filter a kernel converts.
type Conversion uint8

// The conversions. Gathers stands for a filter gradient whose workspace is a
// multiple of the results (ConvWorkspaces.Gathers).
const (
	ConvertsNothing Conversion = iota
	ConvertsRead               // what it reads
	ConvertsAll                // and what it writes
	Gathers
)

// ConvWorkspaces is what the kernels of each kind convert.
type ConvWorkspaces struct {
	Kinds   [ConvKinds][3]Conversion
	Gathers Gathering
}

// Gathering is the workspace of the filter gradient of a first layer.
type Gathering struct {
	Times tensor.Bytes // the results
	Most  tensor.Bytes // above, there is none
	Arch  int          // the one architecture that has it; 0: all
}

// TF32Workspaces is the table of float32 convolutions on tensor cores, which
// PyTorch lets cuDNN compute in TF32 by default.
//
// Its entries were chosen so that the peaks of 15 runs of torchvision's CNNs on
// RTX 3060 and 4060 come out (testdata/measured), among those that the kernels
// allow for: forward kernels that read channels-last and write row-major have
// nhwckcrs_nchw in their names, gradients have kernels that do both
// channels-last. The filter gradient of a first layer is nothing but an
// observation: with 200 to 323 images MNASNet and MobileNetV2 show about 8 times
// its results on an RTX 3060 (374 to 604 MiB); with 382 images and more, on an
// RTX 4060, and where it would be more (VGG, ResNet) nothing is seen.
// docs/accuracy.md says what each family of models would get from a table chosen
// without it: dense convolutions rest on VGG, grouped ones on RegNet alone.
var TF32Workspaces = ConvWorkspaces{
	Kinds: [ConvKinds][3]Conversion{
		ConvDense:     {ConvertsRead, ConvertsAll, ConvertsAll},
		ConvPointwise: {},
		ConvGrouped:   {ConvertsNothing, ConvertsAll, ConvertsAll},
		ConvFirst:     {ConvertsNothing, ConvertsAll, Gathers},
	},
	Gathers: Gathering{Times: 8, Most: 640 * tensor.MiB, Arch: 86},
}

// halfWorkspaces is the table of 16-bit convolutions, for which tensor cores
// have channels-last kernels alone. It was not held against measurements.
var halfWorkspaces = ConvWorkspaces{
	Kinds: [ConvKinds][3]Conversion{
		ConvDense:     {ConvertsAll, ConvertsAll, ConvertsAll},
		ConvPointwise: {ConvertsAll, ConvertsAll, ConvertsAll},
		ConvGrouped:   {ConvertsNothing, ConvertsAll, ConvertsAll},
		ConvFirst:     {ConvertsAll, ConvertsAll, ConvertsAll},
	},
}

// scalarWorkspaces is that of kernels without tensor cores, which work in the
// layout that they find (implicit GEMM).
var scalarWorkspaces ConvWorkspaces

// table is that for a type on an architecture.
func (w *Workspace) table(d tensor.DType, arch int) *ConvWorkspaces {
	switch {
	case d == tensor.Float32 && arch >= 80:
		if w.TF32 != nil {
			return w.TF32
		}
		return &TF32Workspaces
	case d == tensor.Float16 && arch >= 70, d == tensor.BFloat16 && arch >= 80:
		return &halfWorkspaces
	}
	return &scalarWorkspaces
}

// Expected is what a call is expected to take on an architecture.
func (w *Workspace) Expected(c ConvCall, arch int) tensor.Bytes {
	return w.table(c.DType, arch).Workspace(c, arch)
}

// ConvCall is one kernel of cuDNN with the bytes of its operands: images, filter
// and results of the convolution, whichever of them the kernel reads.
type ConvCall struct {
	Kind    ConvKind
	Kernel  ConvKernel
	DType   tensor.DType
	X, W, Y tensor.Bytes
}

// Most is a workspace in which all operands are converted.
func (c ConvCall) Most() tensor.Bytes { return c.X + c.W + c.Y }

// Workspace is what the table expects for a call on an architecture.
func (t *ConvWorkspaces) Workspace(c ConvCall, arch int) tensor.Bytes {
	switch t.Kinds[c.Kind][c.Kernel] {
	case ConvertsRead:
		return [...]tensor.Bytes{Fprop: c.X + c.W, Dgrad: c.Y + c.W, Wgrad: c.X + c.Y}[c.Kernel]
	case ConvertsAll:
		return c.X + c.W + c.Y
	case Gathers:
		g := t.Gathers
		if n := g.Times * c.Y; n <= g.Most && (g.Arch == 0 || g.Arch == arch) {
			return n
		}
	}
	return 0
}
