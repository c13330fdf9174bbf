package op

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Op is one operator.
type Op struct {
	// Name is the ATen name without "aten::". Node names in traces and the
	// word that users write are derived from it unless Sig says otherwise.
	Name string

	// Sig is how a Python program writes the call, for operators that a spec
	// may use; empty for operators that only other rows call. See ParseSig.
	Sig string

	// Args is a pointer to a zero value of the struct that holds the row's
	// non-tensor arguments; nil if there are none. Its fields are matched to
	// Sig by their `arg` tags.
	Args any

	// Cast is what autocast does to the inputs, since the release that CastSince names; nil:
	// in all of them.
	Cast      CastPolicy
	CastSince *torchver.Change

	// CastList is the range of inputs, from the first to before the second, that
	// are the items of one list argument; autocast converts them in order. All are,
	// where Sig has such an argument.
	CastList [2]int

	// Run performs a primitive or a composite.
	Run func(c *Call)

	// Composite marks a Run that calls other rows and records nothing itself.
	Composite bool

	// Steps marks a Run, and a Grad, that are several operators to PyTorch's dispatcher,
	// though they call no rows: what Python does with the parts of a DTensor.
	Steps bool

	// List says that the results are a tuple however many there are, one as well.
	List bool

	// View makes the row a view: it returns the layouts of the results over
	// the storage of input 0.
	View func(c *Call) []tensor.Layout

	// InPlace says that the result is input 0, modified. Run then allocates
	// scratch only.
	InPlace bool

	// Of is the operator whose in-place form this is.
	Of *Op

	// Takes refuses the element types for which PyTorch has no kernel, or no
	// conversion between the operands; nil for the check of Of, if there is one.
	Takes func(c *Call)

	// Copies says that the elements of the results are those of input 0, as they
	// are those of a view.
	Copies bool

	// Below is a number that all elements of the result are less than, of an operator
	// that makes integers, and whether there is one.
	Below func(c *Call) (end int64, ok bool)

	// Rows is, of an operator that looks up rows of a table by integers, the input that
	// holds them and how many rows there are.
	Rows func(c *Call) (index *Tensor, rows int64)

	// Indices are the inputs that hold indices.
	Indices []Indices

	// Flops counts the multiplications and additions of a call that has run; nil
	// for an operator that is not made of matrix products.
	Flops func(c *Call) float64

	// Save lists what autograd keeps, in the order in which it is released.
	Save []Save
	// Late says that inputs are saved when it has run, as ctx.save_for_backward does.
	Late bool

	// Seeds is how many tensors of one number on the CPU autograd keeps, too: the state of
	// random numbers.
	Seeds int

	// Grad computes the gradients of the inputs; nil for an operator without a
	// derivative, whose results never require grad.
	Grad func(b *Back)

	// GradGraph is Grad made of operators that autograd records in their turn: for
	// backward passes with create_graph; nil where that is not modelled.
	GradGraph func(b *Back)

	// Eval is how values are computed; nil for what is made of other operators.
	Eval *Eval

	// Last are inputs, in order, that come behind all others in PyTorch's
	// signature: their gradients are handed on last.
	Last []int

	// Node is the name of the autograd node, e.g. "AddmmBackward0".
	Node string

	// NoGrad lists results that are not differentiable although they are of
	// a floating type (statistics kept for the backward pass).
	NoGrad []int

	// NotModelled names what memplan leaves out of this operator; it is said
	// in the report of every plan that uses the row.
	NotModelled string

	// Passed says of a call of attention, with its arguments, why cuDNN, which is asked
	// for it first, does not take it; "" if it is not asked.
	Passed func(args any) string

	// Unfused says of a call, with its arguments and inputs, why no fused kernel runs
	// and what that takes; "" where it is little.
	Unfused func(args any, in []*Tensor) string

	// Refused says that Run always fails: the operator is known, and not modelled.
	Refused bool

	// Source is where the facts were read or recorded.
	Source string

	inPlace  *Op  // whose Of it is
	sized    bool // a call gives the sizes of a tensor as numbers
	evidence Evidence
}

// CastPolicy is how torch.autocast treats an operator's inputs
// (aten/src/ATen/autocast_mode.h).
type CastPolicy uint8

// The policies.
const (
	CastNone      CastPolicy = iota // runs in the type of its inputs
	CastLower                       // lower_precision_fp: inputs to float16 or bfloat16
	CastFP32                        // inputs to float32
	CastFP32Out                     // fp32_set_opt_dtype: the result in float32 unless a type is given
	CastPromote                     // the widest type among the inputs
	CastForbidden                   // an error under autocast
	CastHalf                        // inputs to float16, whatever the type of autocast is: cuDNN's RNN
)

// Save names one tensor that autograd keeps.
type Save struct {
	Out   bool // result rather than input
	Index int
	// IfNeeds, if not nil, are the inputs for whose gradients the tensor is
	// used: it is kept only if one of them needs a gradient.
	IfNeeds []int

	Rest  bool // and all inputs behind Index, the items of one list
	State bool // the state of the dropout of recurrent layers, which is no input; once there is one
}

// Edge is the input whose gradient is handed on as the k-th of n.
func (r *Op) Edge(k, n int) int {
	if at := k - (n - len(r.Last)); at >= 0 {
		return r.Last[at]
	}
	for _, i := range r.Last {
		if k >= i {
			k++
		}
	}
	return k
}

// Saves lists what autograd keeps of a call with so many inputs, each tensor by
// itself; Rest says of an item that it is one of a list.
func (r *Op) Saves(inputs int) []Save {
	for k, s := range r.Save {
		if s.Rest {
			out := append([]Save(nil), r.Save[:k]...)
			for i := s.Index; i < inputs; i++ {
				out = append(out, Save{Index: i, IfNeeds: s.IfNeeds, Rest: true})
			}
			return append(out, r.Save[k+1:]...)
		}
	}
	return r.Save
}

// saves reports whether Save lists an input or a result.
func (r *Op) saves(out bool, i int) bool {
	for _, s := range r.Save {
		if s.Out == out && !s.State && (s.Index == i || s.Rest && i > s.Index) {
			return true
		}
	}
	return false
}

// In saves input i; with needs, only if one of those inputs needs a gradient.
func In(i int, needs ...int) Save { return Save{Index: i, IfNeeds: needs} }

// Out saves result i; with needs, only if one of those inputs needs a gradient.
func Out(i int, needs ...int) Save { return Save{Out: true, Index: i, IfNeeds: needs} }

// Tensor is a tensor while a program is played: a shape and a type over a
// storage. Everything else belongs to the player.
type Tensor struct {
	tensor.Layout
	DType tensor.DType
	Aux   any // the player's own record of storage, references and gradient
}

// Bytes is the size of a fresh allocation of t's shape and type.
func (t *Tensor) Bytes() tensor.Bytes {
	return tensor.Bytes(t.Numel() * t.DType.Size())
}

// Exec is what a row may ask of the player that runs it.
type Exec interface {
	Env() *Env

	// New allocates a tensor of the given layout, at offset 0.
	New(l tensor.Layout, d tensor.DType) *Tensor
	// NewIn allocates a tensor whose storage is larger than its layout needs.
	NewIn(storage tensor.Bytes, l tensor.Layout, d tensor.DType) *Tensor
	// Alias returns another tensor over t's storage, outside of autograd.
	Alias(t *Tensor, l tensor.Layout, d tensor.DType) *Tensor
	// ViewOf returns a view of t as autograd knows it: it keeps t alive, so that
	// nothing can modify t's storage as its only owner. Derivative formulas make
	// such views; kernels make aliases.
	ViewOf(t *Tensor, l tensor.Layout) *Tensor
	// Keep adds a reference to t and returns t.
	Keep(t *Tensor) *Tensor
	// Drop gives up one reference to each tensor, in order; nil is skipped.
	Drop(ts ...*Tensor)
	// Do runs another operator, with autograd where the player records it.
	// The caller owns the results.
	Do(r *Op, args any, in ...*Tensor) []*Tensor
	// SumTo sums t over the dimensions along which shape was broadcast to it
	// (at::sum_to); a tensor of that shape already comes back itself. The caller
	// owns the result.
	SumTo(t *Tensor, shape tensor.Dims) *Tensor
	// BlasHandle says that a cuBLAS call is made now, which needs the calling
	// thread's handle and its workspace.
	BlasHandle()
	// LtHandle says the same of a cublasLt call.
	LtHandle()
	// ConvWorkspace says that a kernel of cuDNN's convolutions runs now, which may
	// need a workspace.
	ConvWorkspace(c cudnn.ConvCall)
	// AttentionPlan says that a plan of cuDNN's attention runs now, whose workspace is
	// not known but for what it is at most.
	AttentionPlan(most tensor.Bytes)
	// FirstPlan reports whether the calling thread runs a convolution of cuDNN of
	// this kind for the first time.
	FirstPlan(p cudnn.ConvPlan) bool
	// EmptyCache gives the allocator's unused segments back to the device.
	EmptyCache()
	// Kernel says that a kernel runs now, of whose blocks its own rule decides.
	Kernel(k Kernel)
	// DropoutState says that cuDNN's RNN drops out now, for which the device
	// keeps the state of the random numbers.
	DropoutState()
	// Packed reports whether tensors lie one after the other in one storage of n
	// elements, as cuDNN's RNN wants its weights.
	Packed(n int64, ts ...*Tensor) bool
	// InHostMemory reports whether t is there, and not on the device.
	InHostMemory(t *Tensor) bool
	// NeedsGrad reports whether t requires grad while grad mode is on.
	NeedsGrad(t *Tensor) bool
	// Requires reports whether t requires grad, whatever the grad mode.
	Requires(t *Tensor) bool
	// RequireGrad makes t, if it is a leaf, one that requires grad.
	RequireGrad(t *Tensor)
	// Fail reports an error of the program (shapes that do not fit, an operator
	// that cannot be modelled): it does not return.
	Fail(format string, args ...any)
}
