// Package host says how much of host memory a training job needs:
// users run out of that, and of /dev/shm, as they do of the GPU's.
//
// The model. A process trains. It holds Python with its libraries and the
// host side of the CUDA context; the data set, if that is in memory; and the
// batches on their way to the GPU. While it starts it holds each model, see
// Loading. While it saves a checkpoint it holds what it writes. The phases
// exclude each other, so the need is the largest of the three. Processes of one
// machine are in the same phase.
//
// Batches come from torch.utils.data.DataLoader. W workers with prefetch
// factor p are given W x p batches ahead; a new one is asked for just before
// one is handed over, while the loop still holds the previous one. A batch
// lives in shared memory (/dev/shm) from the moment a worker begins it until
// the loop drops it, or until the pinning thread has copied it. Counted in
// runs of PyTorch 2.6 with 0, 1, 2 and 4 workers (bytes of /dev/shm, distinct
// addresses of pinned batches):
//
//	workers   pinned   in shared memory   pinned batches
//	0         no       -                  -    (2 in ordinary memory)
//	0         yes      -                  2    (1 in ordinary memory)
//	W         no       W p + 2            -
//	W         yes      W p + 1            W p + 1
//
// Pinned memory is taken in powers of two for each tensor and never given back
// (aten/src/ATen/core/CachingHostAllocator.h).
//
// Not modelled: the page cache, the allocator of the C library, and what the
// user's own code keeps. The sizes of the processes are assumptions with a
// range, see Process and Worker, and so is how a model is loaded.
package host

import (
	"math/bits"

	"github.com/memplan/memplan/internal/tensor"
)

// Range is an assumption, or what follows from some, and what it is likely to be
// between.
type Range struct{ Low, Value, High tensor.Bytes }

const mib = tensor.Bytes(1) << 20

var (
	// Process is the resident memory of Python with PyTorch imported and a CUDA
	// context. Assumed: reports of users range from 1.5 GiB with lazily loaded
	// kernels to 4 GiB with large libraries beside.
	Process = Range{1536 * mib, 2048 * mib, 4096 * mib}
	// Worker is what one worker process of a DataLoader holds of its own.
	// Assumed: 0.2 to 0.5 GiB in reports of users, with the data set apart.
	Worker = Range{200 * mib, 350 * mib, 512 * mib}
)

// Shard is the size of a file of a large checkpoint: save_pretrained of
// transformers 4 and of Hugging Face's other libraries cuts at 5 GB.
const Shard = tensor.Bytes(5_000_000_000)

// Loading is how a model comes to the GPU.
type Loading string

// The ways.
const (
	// Built: each process builds the model in its memory, and moves it.
	Built Loading = "built"
	// Streamed: from_pretrained makes the model on the meta device and reads one
	// tensor after the other to the GPU, as device_map says, which is set to the
	// current GPU if there is a quantization_config. At the worst whole files of
	// the checkpoint are read, as those that are no safetensors are.
	Streamed Loading = "streamed"
	// Mapped: from_pretrained maps the files of the checkpoint, and the model is moved
	// from there: at the best the system drops the pages that were read.
	Mapped Loading = "mapped"
	// Sharded: one process has the whole model, the others have it on the meta
	// device and are sent their parts (cpu_ram_efficient_loading of accelerate's
	// FSDP). At the best it is on the meta device everywhere, and made or read on the
	// GPUs; at the worst each process builds it.
	Sharded Loading = "sharded"
)

// page is what shared memory is taken in (Linux).
const page = 4096

// Job is what the need depends on. Batch lists the bytes of each tensor of one
// batch.
type Job struct {
	Batch  []tensor.Bytes
	Static bool // one batch is made before the loop, and no loader is used

	Workers  int64 // processes; 0: batches are made in the training process
	Prefetch int64 // batches that each worker is ahead
	Pinned   bool  // batches are copied to page-locked memory
	Copied   bool  // each worker comes to hold a copy of the data set, see Dataset

	// Dataset is what is held in memory; 0: samples are read when they are asked
	// for. Workers that are started afresh get a copy of it. Forked ones share it
	// with their parent until they write to a page, and counting references to
	// Python objects is writing.
	Dataset   tensor.Bytes
	Transform tensor.Bytes // of one sample while it is transformed

	Processes int64 // on this machine; 0: 1
	Loading   Loading
	Model     tensor.Bytes // the largest model as it is built
	Tensor    tensor.Bytes // the largest of its tensors as it is loaded

	Offloaded tensor.Bytes // in ordinary memory through all steps: optimizer state, averaged weights
	PinnedOff tensor.Bytes // the same in page-locked memory, as taken
	Saving    tensor.Bytes // of a checkpoint, held at one time
}

// Phase is a part of a job.
type Phase string

// The phases.
const (
	Start    Phase = "start"
	Training Phase = "training"
	Saving   Phase = "saving"
)

// Usage is what a job needs: of the processes the one that needs the most in Phase,
// and all of them. Model is what that one holds of the model while it starts.
type Usage struct {
	Process, Workers, Dataset, Loader, Pinned, Model, Offloaded, Saving tensor.Bytes

	SharedMemory  tensor.Bytes // the part of Loader that is in /dev/shm
	LoaderBatches int64
	PinnedBatches int64
	Loading       Loading
	One, All      Range
	// Request is All with processes at their largest and the model loaded as is
	// assumed: what to ask a scheduler for.
	Request tensor.Bytes
	Phase   Phase // in which all need the most
}

// PinnedSize is what the caching host allocator takes for a request: the next
// power of two.
func PinnedSize(b tensor.Bytes) tensor.Bytes {
	if b <= 1 {
		return b
	}
	return tensor.Bytes(1) << bits.Len64(uint64(b-1))
}

// Estimate says what a job needs. A sum beyond 64 bits is an error.
func Estimate(j *Job) (*Usage, error) {
	first, others := j.loaded()
	u := &Usage{Process: Process.Value, Loading: j.Loading, Model: first.Value, Saving: j.Saving}
	var s checked
	u.Offloaded = s.add(j.Offloaded, j.PinnedOff)
	if !j.Static {
		j.batches(u, &s)
	}
	u.Workers = s.mul(Worker.Value, j.Workers)
	copies := int64(1)
	if j.Copied {
		copies += j.Workers
	}
	u.Dataset = s.mul(j.Dataset, copies)
	n := max(j.Processes, 1)
	total := func(process, worker, first, others tensor.Bytes) (one, all tensor.Bytes, phase Phase) {
		running := s.add(process, s.mul(worker, j.Workers), u.Dataset, u.Loader, u.Pinned, u.Offloaded)
		one, phase = running, Training
		if j.Saving > 0 {
			one, phase = s.add(running, j.Saving), Saving
		}
		all = s.mul(one, n)
		start := s.add(process, j.Dataset)
		if together := s.add(s.mul(start, n), first, s.mul(others, n-1)); together > all {
			one, all, phase = s.add(start, first), together, Start
		}
		return one, all, phase
	}
	u.One.Value, u.All.Value, u.Phase = total(Process.Value, Worker.Value, first.Value, others.Value)
	u.One.Low, u.All.Low, _ = total(Process.Low, Worker.Low, first.Low, others.Low)
	u.One.High, u.All.High, _ = total(Process.High, Worker.High, first.High, others.High)
	if j.Loading == Sharded {
		others.High = others.Value
	}
	_, u.Request, _ = total(Process.High, Worker.High, first.High, others.High)
	return u, s.err
}

// loaded says what the first process holds of the model while it starts, and what
// each of the others does.
func (j *Job) loaded() (first, others Range) {
	switch j.Loading {
	case Streamed:
		first = Range{j.Tensor, j.Tensor, max(j.Tensor, min(j.Model, Shard))}
		return first, first
	case Mapped:
		first = Range{j.Tensor, j.Model, j.Model}
		return first, first
	case Sharded:
		return Range{0, j.Model, j.Model}, Range{0, 0, j.Model}
	}
	first = Range{j.Model, j.Model, j.Model}
	return first, first
}

// batches counts the batches on their way; see the table of the package.
func (j *Job) batches(u *Usage, s *checked) {
	ahead := int64(s.mul(tensor.Bytes(j.Prefetch), j.Workers))
	switch {
	case j.Workers == 0 && j.Pinned:
		u.LoaderBatches, u.PinnedBatches = 1, 2
	case j.Workers == 0:
		u.LoaderBatches = 2
	case j.Pinned:
		u.LoaderBatches, u.PinnedBatches = ahead+1, ahead+1
	default:
		u.LoaderBatches = ahead + 2
	}
	for _, b := range j.Batch {
		own := b
		if j.Workers > 0 {
			own = s.mul(page, int64((b+page-1)/page))
		}
		u.Loader = s.add(u.Loader, s.mul(own, u.LoaderBatches))
		u.Pinned = s.add(u.Pinned, s.mul(PinnedSize(b), u.PinnedBatches))
	}
	if j.Workers > 0 {
		u.SharedMemory = u.Loader
	}
	// Each worker transforms one sample at a time.
	u.Loader = s.add(u.Loader, s.mul(j.Transform, max(j.Workers, 1)))
}
