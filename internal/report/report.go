// Package report holds what an estimate says, as plain data under names that
// are a contract, and the renderers that print it.
//
// Computing packages fill a Report; renderers only read it. The JSON form is
// the struct itself: a change of a name or of a meaning raises Version, a new
// name does not. Sizes are in bytes.
package report

import (
	"github.com/memplan/memplan/internal/tensor"

	"github.com/memplan/memplan/internal/note"
)

// Version is the version of the JSON of Report.
const Version = 1

// Report is the outcome of an estimate.
type Report struct {
	Version int    `json:"memplan_report"`
	Spec    string `json:"spec"` // where it came from: a path, "-" or "preset:NAME"
	Model   Model  `json:"model"`
	Device  Device `json:"device"`
	Train   Train  `json:"train"`
	// Params are those of the model, by name; Deciding are the ones that sizes of its
	// inputs are, such as seq, and Assumed the keys that were not given: params.seq,
	// train.batch_size, torch, device.gpu.
	Params      map[string]any `json:"params"`
	Deciding    []string       `json:"deciding_params"`
	Assumed     []string       `json:"assumed"`
	Peak        Peak           `json:"peak"`
	Steps       []Step         `json:"steps"`
	Phases      []Phase        `json:"phases"` // those that allocate, in the order of a step
	AtPeak      AtPeak         `json:"at_peak"`
	Layers      []Layer        `json:"layers"` // what lives at the peak, by layer; the largest first
	Totals      Totals         `json:"totals"`
	Allocator   Allocator      `json:"allocator"`
	Host        *Host          `json:"host"` // null: not modelled
	Verdict     Verdict        `json:"verdict"`
	Lengths     *Lengths       `json:"lengths,omitempty"` // of jobs whose batches have different lengths
	Ranks       []Rank         `json:"ranks,omitempty"`   // of jobs whose processes do different things
	Advice      *Advice        `json:"advice"`            // null: none was asked for
	Curve       []Point        `json:"curve,omitempty"`
	NotModelled []string       `json:"not_modelled"` // the texts of those of Notes that say what is left out
	Warnings    []string       `json:"warnings"`     // of the others
	Notes       []note.Note    `json:"notes"`
	Uncertainty Uncertainty    `json:"uncertainty"`
}

// Add adds notes; it is the only way to.
func (r *Report) Add(notes ...note.Note) {
	for _, n := range notes {
		r.Notes = append(r.Notes, n)
		if n.Code.LeftOut {
			r.NotModelled = append(r.NotModelled, n.Text)
		} else {
			r.Warnings = append(r.Warnings, n.Text)
		}
	}
}

// Model says how large the model is, in elements.
type Model struct {
	Name                string `json:"name"`
	Parameters          int64  `json:"parameters"`
	TrainableParameters int64  `json:"trainable_parameters"`
	// Configurations are where those of models that are named come from: the name, and the table, a
	// file or an address.
	Configurations []string `json:"configurations,omitempty"`
}

// Device is the GPU. Usable is the total less the context and what other
// processes hold: all that the allocator can reserve.
type Device struct {
	Name          string       `json:"name"`
	DisplayName   string       `json:"display_name"`
	Arch          string       `json:"arch"` // such as sm_80
	SMs           int          `json:"sms"`
	TotalBytes    tensor.Bytes `json:"total_bytes"`
	UsableBytes   tensor.Bytes `json:"usable_bytes"`
	ContextBytes  tensor.Bytes `json:"context_bytes"`
	OccupiedBytes tensor.Bytes `json:"other_processes_bytes"`
}

// Train says what was simulated.
type Train struct {
	Mode      string `json:"mode"` // train, inference or no_grad
	BatchSize int64  `json:"batch_size"`
	// OneSequence is set if the samples of a batch are one sequence (packing,
	// padding-free), whose length is the one that Params have.
	OneSequence bool `json:"one_sequence,omitempty"`

	Precision string `json:"precision"`
	Optimizer string `json:"optimizer"` // "" without one
	Loop      string `json:"loop"`
	Input     string `json:"input"`
	Steps     int    `json:"steps"`
	Torch     string `json:"torch"`
	// TorchFrom is the line of the project that asks for that release, as torch: auto found it.
	TorchFrom string `json:"torch_from,omitempty"`
	// Ranks is how many processes there are, each on a GPU of its own, whose
	// figures these are; 0: the job is on one GPU.
	Ranks int64 `json:"ranks,omitempty"`
	// Rank is the process that these figures are of, and Microbatches the parts into which a
	// pipeline divides a batch; null and 0 where all processes do the same.
	Rank         *int64 `json:"rank,omitempty"`
	Microbatches int64  `json:"microbatches,omitempty"`
}

// Peak holds the three numbers that are never one: what the program holds in
// tensors, what the allocator has taken from the device for it, and what the
// device shows for the process. Step, phase, operator and layer are those of
// the allocation that reached the peak of allocated memory.
type Peak struct {
	AllocatedBytes tensor.Bytes `json:"allocated_bytes"`
	ReservedBytes  tensor.Bytes `json:"reserved_bytes"`
	RequestedBytes tensor.Bytes `json:"requested_bytes"` // asked for at the peak of allocated
	DeviceBytes    tensor.Bytes `json:"device_bytes"`    // reserved and CUDA context
	// AllocatedBareBytes and ReservedBareBytes are the peaks as they would be if
	// cuDNN's convolutions took no workspaces.
	AllocatedBareBytes tensor.Bytes `json:"allocated_without_workspaces_bytes"`
	ReservedBareBytes  tensor.Bytes `json:"reserved_without_workspaces_bytes"`
	Step               int          `json:"step"` // 0 is setup
	Phase              string       `json:"phase"`
	Op                 string       `json:"op"`
	Layer              string       `json:"layer"`
}

// Step holds the peaks of one step and what it leaves. Steps that are not there
// are like the one before them.
type Step struct {
	Step               int          `json:"step"`
	PeakAllocatedBytes tensor.Bytes `json:"peak_allocated_bytes"`
	PeakReservedBytes  tensor.Bytes `json:"peak_reserved_bytes"`
	EndAllocatedBytes  tensor.Bytes `json:"end_allocated_bytes"`
	EndReservedBytes   tensor.Bytes `json:"end_reserved_bytes"`
}

// Phase holds the most that is allocated and reserved when something is
// allocated in a phase, such as forward or eval, over all steps.
type Phase struct {
	Phase              string       `json:"phase"`
	PeakAllocatedBytes tensor.Bytes `json:"peak_allocated_bytes"`
	PeakReservedBytes  tensor.Bytes `json:"peak_reserved_bytes"`
}

// AtPeak says what lives at the peak of allocated memory. The fields sum to
// Peak.AllocatedBytes.
type AtPeak struct {
	ParametersBytes     tensor.Bytes `json:"parameters_bytes"`
	GradientsBytes      tensor.Bytes `json:"gradients_bytes"`
	OptimizerStateBytes tensor.Bytes `json:"optimizer_state_bytes"`
	ActivationsBytes    tensor.Bytes `json:"activations_bytes"`
	InputsBytes         tensor.Bytes `json:"inputs_bytes"`
	TemporariesBytes    tensor.Bytes `json:"temporaries_bytes"`
	WorkspaceBytes      tensor.Bytes `json:"workspace_bytes"`
	RoundingBytes       tensor.Bytes `json:"rounding_bytes"` // what the allocator adds to the sizes asked for
}

// Share is one line of a breakdown.
type Share struct {
	Name  string
	Bytes tensor.Bytes
}

// Shares lists the fields in the order of reports.
func (a *AtPeak) Shares() []Share {
	return []Share{
		{"parameters", a.ParametersBytes},
		{"gradients", a.GradientsBytes},
		{"optimizer state", a.OptimizerStateBytes},
		{"activations", a.ActivationsBytes},
		{"inputs", a.InputsBytes},
		{"temporaries", a.TemporariesBytes},
		{"workspace", a.WorkspaceBytes},
		{"rounding", a.RoundingBytes},
	}
}

// Layer is what one layer, or all layers of one class whose paths differ in
// their indices alone, hold at the peak of allocated memory. Rounding is left
// out.
type Layer struct {
	Layer            string       `json:"layer"` // module path; * stands for several indices; "" for none
	Kind             string       `json:"kind"`  // class: Linear, or a block of the spec
	Count            int          `json:"count"` // layers in this row
	ParametersBytes  tensor.Bytes `json:"parameters_bytes"`
	GradientsBytes   tensor.Bytes `json:"gradients_bytes"`
	ActivationsBytes tensor.Bytes `json:"activations_bytes"`
	OtherBytes       tensor.Bytes `json:"other_bytes"` // optimizer state, inputs, temporaries, workspace
	TotalBytes       tensor.Bytes `json:"total_bytes"`
}

// Totals are sums over one step, wherever the peak is.
type Totals struct {
	ParametersBytes       tensor.Bytes `json:"parameters_bytes"`
	BuffersBytes          tensor.Bytes `json:"buffers_bytes"`
	GradientsBytes        tensor.Bytes `json:"gradients_bytes"`
	OptimizerStateBytes   tensor.Bytes `json:"optimizer_state_bytes"`
	SavedActivationsBytes tensor.Bytes `json:"saved_activations_bytes"`
	BatchBytes            tensor.Bytes `json:"batch_bytes"`
}

// Allocator describes the caching allocator. Fragmentation is the peak of
// reserved less the peak of allocated memory: what a perfect packing would
// save. Inactive split bytes and segments are those at the peak of reserved
// memory without a limit; retries and out-of-memory errors are those on the
// device.
type Allocator struct {
	Conf               string       `json:"conf"`
	FragmentationBytes tensor.Bytes `json:"fragmentation_bytes"`
	InactiveSplitBytes tensor.Bytes `json:"inactive_split_bytes"`
	Segments           int64        `json:"segments"`
	NumAllocRetries    int64        `json:"num_alloc_retries"`
	NumOOMs            int64        `json:"num_ooms"`
}

// Verdict says whether the job runs. Headroom is the usable memory less the
// peak of reserved memory without a limit; it may be negative while the job
// fits, because the allocator gives cached memory back before it fails.
type Verdict struct {
	Result         string       `json:"result"` // FITS, TIGHT or OOM
	Fits           bool         `json:"fits"`
	Tight          bool         `json:"tight"` // fits only after cached memory was given back
	HeadroomBytes  tensor.Bytes `json:"headroom_bytes"`
	SteadyFromStep int          `json:"steady_from_step"` // 0: the steps played still differ
	Reason         string       `json:"reason"`
	OOM            *OOM         `json:"oom"`  // null if it fits
	Leak           *Leak        `json:"leak"` // null if memory does not grow from step to step
}

// Leak says that each step leaves more on the device than it found. Steps are
// simulated until the job runs out of memory, or a bound is reached; Bytes are those of the
// last Period steps. The largest part of it was made by Op in Layer.
type Leak struct {
	Bytes          tensor.Bytes `json:"bytes"`
	Period         int          `json:"period_steps"`
	SimulatedSteps int64        `json:"simulated_steps"`
	Op             string       `json:"op"`
	Layer          string       `json:"layer"`
	Says           string       `json:"-"` // that, in words
}

// OOM is the first request that fails.
type OOM struct {
	Step       int          `json:"step"`
	Phase      string       `json:"phase"`
	Op         string       `json:"op"`
	Layer      string       `json:"layer"`
	TriedBytes tensor.Bytes `json:"tried_bytes"`
	FreeBytes  tensor.Bytes `json:"free_bytes"`
	Message    string       `json:"message"` // of torch.OutOfMemoryError
}

// Results of a verdict.
const (
	Fits  = "FITS"
	Tight = "TIGHT"
	OOMs  = "OOM"
)

// Uncertainty says what of the figures above is not known for certain, and in
// which bounds.
type Uncertainty struct {
	// CudnnWorkspace says what is counted for cuDNN's convolutions: apart (not in
	// the peak, but in the bounds below), model, none, or the size of each
	// workspace.
	CudnnWorkspace string `json:"cudnn_workspace"`
	// CudnnWorkspaceBytes is the largest workspace in which one of cuDNN's
	// convolutions converts its operands, CudnnWorkspaceExpectedBytes the largest
	// that the peak has; 0 without convolutions.
	CudnnWorkspaceBytes         tensor.Bytes `json:"cudnn_workspace_bytes"`
	CudnnWorkspaceExpectedBytes tensor.Bytes `json:"cudnn_workspace_expected_bytes"`
	// ReservedExpectedBytes is the peak of reserved memory with the workspaces
	// that are counted; low and high bound it for what plans cuDNN may pick.
	ReservedExpectedBytes tensor.Bytes `json:"reserved_expected_bytes"`
	ReservedLowBytes      tensor.Bytes `json:"reserved_low_bytes"`
	ReservedHighBytes     tensor.Bytes `json:"reserved_high_bytes"`
	// CudnnAttention are the modules whose scaled_dot_product_attention cuDNN computes,
	// CudnnAttentionBytes what the workspace of one of its plans may be, which is in no
	// figure but ReservedHighBytes. The least is nothing.
	CudnnAttention      []string     `json:"cudnn_attention,omitempty"`
	CudnnAttentionBytes tensor.Bytes `json:"cudnn_attention_bytes,omitempty"`
	// CudnnRNNBytes is the part of Peak.AllocatedBytes that cuDNN's recurrent
	// layers take beside their results; only cuDNN knows the true sizes.
	CudnnRNNBytes tensor.Bytes `json:"cudnn_rnn_bytes"`
	// ContextLowBytes and ContextHighBytes bound the CUDA context as it was
	// seen or assumed.
	ContextLowBytes  tensor.Bytes `json:"context_low_bytes"`
	ContextHighBytes tensor.Bytes `json:"context_high_bytes"`
	ContextAssumed   bool         `json:"context_assumed"` // it was not measured on this GPU
	ContextSource    string       `json:"context_source"`  // where it was
	// SMsUnsourced says that no one was found to say how many multiprocessors the
	// GPU has, on which the context and the scratch of kernels depend.
	SMsUnsourced bool `json:"sms_unsourced,omitempty"`
	// NCCLLowBytes and NCCLHighBytes bound what NCCL takes on each GPU for the
	// connections between processes, beside PyTorch's allocator; 0 on one GPU.
	NCCLLowBytes  tensor.Bytes `json:"nccl_low_bytes,omitempty"`
	NCCLHighBytes tensor.Bytes `json:"nccl_high_bytes,omitempty"`
	// Unrecorded are the operators that the job runs and no recording of PyTorch does,
	// by name.
	Unrecorded []Unrecorded `json:"unrecorded"`
}

// Unrecorded is an operator whose memory was not held against PyTorch's.
type Unrecorded struct {
	Op         string `json:"op"`
	Derivative bool   `json:"derivative"` // only its derivative was not
	Basis      string `json:"basis"`      // read or assumed
	Source     string `json:"source"`     // where it was read
}
