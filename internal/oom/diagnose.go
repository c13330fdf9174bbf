package oom

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Cause is why a job ran out of memory.
type Cause string

// The causes.
const (
	Size          Cause = "size"          // what the job holds in tensors is too much
	OneTensor     Cause = "one-tensor"    // a single request is more than the device has
	Fragmentation Cause = "fragmentation" // enough is free inside PyTorch, but not in one piece
	OtherProcess  Cause = "other-process" // other processes hold what is missing
	Limit         Cause = "limit"         // the memory fraction, not the device
	NotPyTorch    Cause = "not-pytorch"   // the process holds much that PyTorch's allocator did not take
	Growth        Cause = "growth"        // it went well for many steps: a leak, or inputs that vary
	HostMemory    Cause = "host-memory"
	SharedMemory  Cause = "shared-memory"
	Library       Cause = "library" // a library found no memory beside PyTorch's
)

// Finding is a cause with its reckoning.
type Finding struct {
	Cause Cause    `json:"cause"`
	Why   string   `json:"why"`
	Fixes []string `json:"fixes"`
}

// context is what a process without PyTorch's memory has at most beside it: the
// CUDA context, libraries' workspaces.
const context = tensor.Bytes(3) << 29 // 1.5 GiB

// growing is from how many steps on a job is said to have run well before.
const growing = 20

// Diagnose names the causes, the most likely one first; there is always one.
func Diagnose(f *Failure) []Finding {
	var out []Finding
	add := func(c Cause, format string, args ...any) {
		out = append(out, Finding{c, fmt.Sprintf(format, args...), fixes[c]})
	}
	switch f.Kind {
	case CPU:
		if f.Tried >= 0 {
			add(HostMemory, "%v of host memory was requested, not of a GPU's", f.Tried)
		} else {
			add(HostMemory, "host memory ran out, not a GPU's")
		}
		return out
	case Pinned:
		add(HostMemory, "page-locked host memory (pin_memory) ran out; CUDA reports it in the words of GPU memory")
		return out
	case Killed:
		add(HostMemory, "host memory, or the container's limit of it, ran out, and the kernel or the scheduler killed the process")
		return out
	case Shared:
		add(SharedMemory, "workers of the data loader hand over batches in /dev/shm, and it is full")
		return out
	case Driver, CuBLAS, CuDNN, NCCL:
		add(Library, "%s could not allocate GPU memory outside of PyTorch's allocator: PyTorch, or other processes, hold nearly all of it", libraries[f.Kind])
		out = f.grown(out)
		return out
	}
	capacity := f.Total
	if f.Allowed >= 0 && (capacity < 0 || f.Allowed < capacity) {
		capacity = f.Allowed
	}
	rest := none // reserved by PyTorch and not allocated
	if f.Reserved >= 0 && f.Allocated >= 0 {
		rest = f.Reserved - f.Allocated
	}
	lacking := f.Tried - max(f.Free, 0)
	switch {
	case f.Tried < 0:
	case f.Allowed >= 0 && f.Free >= f.Tried:
		add(Limit, "%v were free for the %v requested, but the process may take no more than %v", f.Free, f.Tried, f.Allowed)
	case capacity >= 0 && f.Tried > capacity:
		add(OneTensor, "a single request of %v is more than the %v that there are", f.Tried, capacity)
	}
	if f.Tried >= 0 && rest >= f.Tried && !f.full(capacity) && len(out) == 0 {
		add(Fragmentation, "PyTorch has %v reserved but not allocated, more than the %v requested, but not in one block", rest, f.Tried)
	}
	if others := f.others(); f.Tried >= 0 && others >= lacking && others > f.Total/20 && lacking > 0 {
		add(OtherProcess, "%v of the GPU are held by other processes; %v were missing", others, lacking)
	}
	if f.InUse >= 0 && f.Reserved >= 0 && f.InUse-f.Reserved > context && f.InUse-f.Reserved >= lacking {
		add(NotPyTorch, "this process holds %v in addition to the %v that PyTorch reserved: CUDA contexts, NCCL, other libraries", f.InUse-f.Reserved, f.Reserved)
	}
	if len(out) == 0 && rest > 0 && f.Tried >= 0 && rest >= lacking && rest > f.Reserved/10 {
		add(Fragmentation, "PyTorch has %v reserved but not allocated (of %v reserved); released, they would cover the missing %v", rest, f.Reserved, lacking)
	}
	out = f.grown(out)
	if len(out) == 0 {
		switch {
		case f.Allocated >= 0 && f.Tried >= 0 && capacity >= 0:
			add(Size, "%v were allocated by tensors and %v more were requested; the device has %v", f.Allocated, f.Tried, capacity)
		case f.Kind == Async:
			add(Size, "what the job holds is too much for the device; PyTorch's cudaMallocAsync backend says no more than that")
		default:
			add(Size, "what the job holds is too much for the device")
		}
	}
	return out
}

// full reports whether tensors fill all but a twentieth of what there is: a job
// that then fails at a small request, which unused memory would serve, fails
// at the next.
func (f *Failure) full(capacity tensor.Bytes) bool {
	return capacity >= 0 && f.Allocated > capacity-capacity/20
}

// grown adds that the job had run for long.
func (f *Failure) grown(out []Finding) []Finding {
	if f.Progress < growing {
		return out
	}
	return append(out, Finding{Growth, fmt.Sprintf("about %d steps had gone well before: a plan of one size is the same in every step, so either something is kept from step to step (a leak), or this batch was larger than those before", f.Progress), fixes[Growth]})
}

// others is what other processes hold on the GPU: as listed, or else what is
// missing between the figures.
func (f *Failure) others() tensor.Bytes {
	var listed tensor.Bytes
	for _, p := range f.Processes {
		if p.Bytes > 0 {
			listed += p.Bytes
		}
	}
	if listed > 0 || f.Total < 0 || f.Free < 0 {
		return listed
	}
	switch {
	case f.InUse >= 0:
		return max(0, f.Total-f.Free-f.InUse)
	case f.Reserved >= 0: // the process's context is in it
		return max(0, f.Total-f.Free-f.Reserved-context)
	}
	return 0
}

var libraries = map[Kind]string{Driver: "CUDA", CuBLAS: "cuBLAS", CuDNN: "cuDNN", NCCL: "NCCL"}

// fixes are what helps against each cause, the cheapest first.
var fixes = map[Cause][]string{
	Size: {
		"memplan estimate SPEC: the cheapest changes that fit, of a job described in YAML",
		"a smaller batch with gradient accumulation: the same effective batch",
		"autocast (bf16) or activation checkpointing",
	},
	OneTensor: {
		"look at the operator in the traceback: attention by matrix products and logits over a large vocabulary make tensors that large",
		"scaled_dot_product_attention, a loss in chunks, a shorter sequence or a smaller batch",
	},
	Fragmentation: {
		fmt.Sprintf("%s=expandable_segments:True (%s, the name in newer messages, is read from PyTorch %v on)", torchver.AllocConf, torchver.AllocConfNew, torchver.ReadsAllocConfNew.Since),
		"inputs of one size: pad to a few lengths, drop the last batch",
		"max_split_size_mb, if expandable segments cannot be used",
	},
	OtherProcess: {
		"nvidia-smi shows who: a notebook, a job that did not end, another user",
		"choose a free GPU with CUDA_VISIBLE_DEVICES; check that each rank uses its own",
	},
	Limit: {
		"raise torch.cuda.set_per_process_memory_fraction, or per_process_memory_fraction of the allocator's options",
	},
	NotPyTorch: {
		"one CUDA context per process: a worker or a library that touches the GPU makes another one",
		"NCCL's buffers (NCCL_BUFFSIZE) and CUDA graphs count here",
	},
	Growth: {
		"keep numbers, not tensors: losses.append(loss.item()), no retain_graph=True without need",
		"torch.cuda.memory_allocated() at the end of each step: if it rises, something is kept",
		"if lengths vary: pad or bucket them, and plan for the longest",
	},
	HostMemory: {
		"fewer workers or a smaller prefetch_factor in the data loader; do not hold the data set as Python objects",
		"memplan estimate SPEC: its host memory section says what the job needs",
	},
	SharedMemory: {
		"a larger /dev/shm: docker run --shm-size=8g, or an emptyDir of medium Memory in Kubernetes",
		"fewer workers or a smaller prefetch_factor",
	},
	Library: {
		"leave memory outside PyTorch: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9)",
		"nvidia-smi shows whether another process holds the GPU",
		"CUBLAS_STATUS_NOT_INITIALIZED also follows an index out of range in an embedding or a loss: run once with CUDA_LAUNCH_BLOCKING=1",
	},
}
