package program

import "slices"

// Techniques are what a job does beside the statements of its step.
type Techniques struct {
	Kept     []Kept // what outlives a step, in the order of first use
	EMA      *EMA
	Eval     *Eval
	Offload  Offload
	Parallel Parallel
	// InBackward: each parameter has an optimizer of its own, which steps when its
	// gradient is ready and drops it (Tensor.register_post_accumulate_grad_hook).
	InBackward bool
	Prefetch   bool // the next batch is copied on a stream of its own while a step runs
}

// Keep says how a statement keeps a value: list.append(value), or, as a sum,
// list += value.
type Keep struct {
	List   string
	Detach bool // value.detach()
	CPU    bool // value.cpu()
	Item   bool // value.item()
	Sum    bool
}

// Kept is a variable that lives longer than what appends to it: across steps, or
// across the batches of an evaluation.
type Kept struct {
	Name string
	Sum  bool // a number at first, not a list
}

// EMA is a second copy of a model whose weights follow those of the first
// (torch.optim.swa_utils.AveragedModel).
type EMA struct {
	Name  string // by which the step calls it
	Model string
	Decay float64
	CPU   bool
}

// Eval is a function that runs between steps.
type Eval struct {
	Fn      *Func // the statements of one batch
	Every   int64
	AtStart bool // there is one before the first step, too
	Batches int64
	Context string // "no_grad", "inference_mode" or "": gradients are recorded
	Train   bool   // the models stay in training mode
	Aux     *Class // the modules that the statements themselves call
	Kept    []Kept
	Sized
	Last *Sized // of statements that take a batch of another size, such as the last one; nil: there are none
}

// Sized is what depends on the size of a batch.
type Sized struct {
	Inputs []Input
	// Models are the classes of the models as these inputs make them, by name:
	// over the same parameters, with other sizes. Apart are those of them that
	// are other programs, too.
	Models map[string]*Class
	Apart  map[string]bool
	Fused  map[string][]Fused // of the models by name, as Adapters.Fused
}

// LossName is what a spec calls the value that is trained, in a step and in an evaluation.
const LossName = "loss"

// Loss is the slot of the loss of a batch, which the statements compute and do not delete;
// negative: there is none.
func (e *Eval) Loss() int {
	loss := slices.Index(e.Fn.Slots, LossName)
	for i := len(e.Fn.Body) - 1; i >= 0; i-- {
		if s := &e.Fn.Body[i]; slices.Contains(s.Targets, loss) {
			if s.Kind == Del {
				return -1
			}
			return loss
		}
	}
	return -1
}

// Sizes are the batches of an evaluation, by size.
func (e *Eval) Sizes() []*Sized {
	if e.Last == nil {
		return []*Sized{&e.Sized}
	}
	return []*Sized{&e.Sized, e.Last}
}

// OfSize are those that a statement or a call of a model takes.
func (e *Eval) OfSize(last bool) *Sized {
	if last {
		return e.Last
	}
	return &e.Sized
}

// IsApart reports whether a model is another program in evaluations.
func (e *Eval) IsApart(model string) bool {
	return slices.ContainsFunc(e.Sizes(), func(s *Sized) bool { return s.Apart[model] })
}

// OwnBatches reports whether evaluations make batches of their own: their
// statements take one, and it is not the static batch of the steps.
func (j *Job) OwnBatches() bool {
	takes := slices.ContainsFunc(j.Eval.Fn.Body, func(s Stmt) bool { return s.Kind == Batch })
	return takes && !(j.Static && slices.EqualFunc(j.Inputs, j.Eval.Inputs, func(a, b Input) bool { return slices.Equal(a.Size, b.Size) }))
}

// Offload says what lies in host memory.
type Offload struct {
	Parameters  bool
	Optimizer   bool
	Gradients   bool
	Activations bool
	Pinned      bool
	Away        *OffloadActivations // in place of save_on_cpu
}

// OffloadActivations are hooks of saved tensors that copy them to the CPU and back
// on a stream of their own (trl/models/activation_offloading.py and
// torchtune/training/_activation_offloading.py).
type OffloadActivations struct {
	Pinned, Streams bool
	Min             int64 // bytes of the smallest tensor that is copied
	Stash           int64 // saved tensors until one that left is freed
	Except          Patterns
}
