package op

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Env holds the facts that PyTorch's code branches on.
type Env struct {
	Arch         int // compute capability × 10: 80 for sm_80
	SMs          int // streaming multiprocessors
	ThreadsPerSM int // resident threads per multiprocessor
	Torch        torchver.Version

	GradMode      bool // torch.is_grad_enabled()
	Inference     bool // torch.inference_mode
	Training      bool // module.training of the module at work
	Autocast      bool
	AutocastDType tensor.DType
	Deterministic bool // torch.use_deterministic_algorithms

	// TorchDispatch says that a mode of torch dispatch is at work, such as that
	// of a selective checkpoint: operators that are made of others do not modify
	// their intermediates in place then (isTensorSubclassLike in
	// aten/src/ATen/TensorSubclassLikeUtils.h).
	TorchDispatch bool

	// FakeTensors plays the job as under FakeTensorMode, where no kernel runs:
	// there is only what operators return and what derivative formulas make,
	// nothing that a kernel or a library allocates inside.
	FakeTensors bool

	// Pretended plays the job as on the GPU that memplan record pretends, where no
	// kernel runs either: there is what operators return and what derivative
	// formulas make of operators.
	Pretended bool

	// CudnnBenchmark is torch.backends.cudnn.benchmark.
	CudnnBenchmark bool

	// ChannelsLast says that the parameters of models and the tensors of batches that
	// look like images are in channels-last order (see Laid).
	ChannelsLast bool

	// CudnnWorkspace is what convolutions of cuDNN take while they run.
	CudnnWorkspace cudnn.Workspace

	// Cudnn is the version of cuDNN that is loaded, as cudnnGetVersion says it.
	Cudnn int

	// NoSDPA are the implementations of scaled_dot_product_attention that are
	// disabled.
	NoSDPA SDPA

	// StubCudnn takes the sizes that the recordings in testdata have for the
	// workspace, the reserve and the random numbers of cuDNN's RNN: there a stub
	// stood in for cuDNN and answered with round figures of its own.
	StubCudnn bool
}

// Laid is the layout of a parameter or of a tensor of a batch: Module.to(memory_format)
// converts those of four and five dimensions.
func (e *Env) Laid(size tensor.Dims) tensor.Layout {
	return tensor.InFormat(size, e.ChannelsLast && (size.Len() == 4 || size.Len() == 5))
}

// NoKernels reports whether nothing is allocated inside of kernels and libraries.
func (e *Env) NoKernels() bool { return e.FakeTensors || e.Pretended }

// SDPA are implementations of scaled_dot_product_attention, as bits.
type SDPA uint8

// The implementations (at::SDPBackend).
const (
	SDPAFlash SDPA = 1 << iota
	SDPAEfficient
	SDPAMath
	SDPACudnn
)

// SDPANames are what PyTorch calls them, in the order of the bits, as in
// torch.backends.cuda.enable_flash_sdp.
var SDPANames = []string{"flash", "mem_efficient", "math", "cudnn"}

// CublasWorkspace is the size in bytes of the workspace of a cuBLAS handle:
// 32 MiB on the architectures that PyTorch's getChosenWorkspaceSize lists, else
// the sum of its :4096:2:16:8, in KiB (aten/src/ATen/cuda/CublasHandlePool.cpp).
// Deterministic algorithms need CUBLAS_WORKSPACE_CONFIG; the program sets
// :4096:8.
func (e *Env) CublasWorkspace() int64 {
	if e.Deterministic {
		return 4096 * 8 << 10
	}
	if e.Torch.CublasWorkspace32MiB(e.Arch / 10) {
		return 32 << 20
	}
	return (4096*2 + 16*8) << 10
}

// LtWorkspace is the size in bytes of the buffer that cublasLt takes for itself,
// for one call or for good; 0 where it uses the handle's workspace or no kernel runs.
func (e *Env) LtWorkspace() int64 {
	if e.NoKernels() || e.Torch.CublasLtSharesWorkspace() {
		return 0
	}
	return 1 << 20
}

// ConvWorkspace is what a convolution of cuDNN is counted with.
func (e *Env) ConvWorkspace(c cudnn.ConvCall) tensor.Bytes {
	return e.CudnnWorkspace.Counted(c, e.Arch)
}
