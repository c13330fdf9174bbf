// Package program is the form in which memplan holds a training job: a small
// subset of Python, as data. A spec means a program; package graph makes it,
// package exporttorch prints it as a PyTorch script, package engine plays it.
//
// A job has classes (the module types), a tree of module instances for each
// model, optimizers, and the statements of one step. Functions are lists of
// statements over numbered slots (local variables, in the order of their first
// appearance), because the order of slots is the order in which a frame's
// locals die.
//
// Everything that a spec computes is computed already: loops are unrolled,
// expressions are constants, shapes are known.
package program

import (
	"slices"

	"github.com/memplan/memplan/internal/inductor"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
)

// Job is a whole training job on one device.
type Job struct {
	Name       string
	Models     []*Model
	Optimizers []*Optimizer
	Inputs     []Input // the tensors of a batch, in the order in which they are copied
	Batch      int64
	DType      tensor.DType // of floating parameters, buffers and inputs: the whole model's precision
	Static     bool         // one batch is made before the loop
	Rebind     bool         // names of a batch are bound to its tensors on the CPU, then to their copies
	Inference  string       // "": training; else the context: "inference_mode" or "no_grad"
	Flat       bool         // the step is the body of the loop, not a function
	FromZero   bool         // First is 0
	Before     *Func        // runs once before the first step; nil: nothing does
	Step       *Func
	Autocast   bool         // forward passes and losses run under torch.autocast
	LowerType  tensor.DType // of autocast: float16 or bfloat16
	Scaler     bool         // losses are scaled and steps made by torch.amp.GradScaler
	Aux        *Class       // the modules that the step itself calls, such as the loss
	Determ     bool
	Benchmark  bool // torch.backends.cudnn.benchmark
	// ChannelsLast: models are converted by Module.to(memory_format=torch.channels_last),
	// and images of batches are copied in that order.
	ChannelsLast bool
	// Steps is of how many steps the training is, for schedules that end with it; 0: of
	// those that are played.
	Steps      int64
	NoSDPA     op.SDPA // implementations of scaled_dot_product_attention that are disabled
	Techniques         // what the job does beside the step
}

// First is the number of the first step, by which Every counts.
func (j *Job) First() int64 {
	if j.FromZero {
		return 0
	}
	return 1
}

// BatchLayout is how a tensor of a batch lies on the device.
func (j *Job) BatchLayout(in Input) tensor.Layout {
	return tensor.InFormat(tensor.D(in.Size...), in.Format(j) != "")
}

// Format is the memory format in which a tensor of a batch is copied to the device; "" if
// none is said. Images are floating and have four dimensions or five.
func (in *Input) Format(j *Job) tensor.MemoryFormat {
	if !j.ChannelsLast || !in.DType.IsFloating() {
		return ""
	}
	return tensor.LastFormat(len(in.Size))
}

// Formats are the channels-last formats of a model's parameters and buffers, each with
// the path of the first.
func (m *Model) Formats() map[tensor.MemoryFormat]string {
	formats := map[tensor.MemoryFormat]string{}
	m.Root.Walk(func(path string, c *Class) {
		for _, p := range slices.Concat(c.Params, c.Buffers) {
			if f := tensor.LastFormat(len(p.Size)); f != "" && formats[f] == "" {
				formats[f] = Join(path, p.Name)
			}
		}
	})
	return formats
}

// Model is a module tree with a name.
type Model struct {
	Name string
	Root *Class
	// Frozen covers the parameters that do not require grad, Trained those of
	// them that do nevertheless.
	Frozen, Trained Patterns
	Eval            bool // in eval mode while the job trains
	// Deviation is the standard deviation of what transformers' models fill the weights
	// of linear layers, convolutions and tables with; 0: modules start as in torch.nn.
	Deviation float64

	Loaded    *Loading      // nil: built in host memory
	Pruned    *Pruning      // nil: not
	Quantized *Quantization // nil: not
	Adapters  *Adapters     // nil: none
	Compiled  *Compiled     // nil: not
}

// Compiled is what Inductor made of a model, by the log of its code.
type Compiled struct {
	File   string
	Graphs []*inductor.Graph
}

// Optimizer updates the parameters of some models.
type Optimizer struct {
	Name   string
	Row    *optim.Row
	Args   any          // the row's argument struct
	Given  []KwArg      // as the spec gives them, for printing
	Models []string     // whose parameters
	Params Patterns     // cover those that it updates; none: all
	Groups []ParamGroup // in their order; none: one of all parameters

	Scheduler *Scheduler // of the learning rates; nil: they stay
	Unrated   string     // why they stay where a trainer would change them
}

// Scheduler is a scheduler of torch.optim.lr_scheduler as a spec gives it.
type Scheduler struct {
	*optim.Schedule
	Given []KwArg      // for printing, without the schedulers that it is made of
	Parts []*Scheduler // that it is made of
	Every int64        // it steps in every n-th step; 0: with its optimizer
	// Trainer says that it is that of a trainer, which steps it whenever the optimizer has
	// stepped. Scripts leave it out.
	Trainer bool
}

// Measures reports whether evaluations step the optimizer's scheduler, by their loss.
func (o *Optimizer) Measures() bool { return o.Scheduler != nil && o.Scheduler.Row.Measures != nil }

// ParamGroup is a parameter group of an optimizer: parameters that are stepped
// with arguments of their own.
type ParamGroup struct {
	Params Patterns // cover those that no group before takes; none: what all others leave
	Args   any      // the row's argument struct
	Given  []KwArg  // that are not the optimizer's, for printing
}

// KwArg is an argument that was given, for printing.
type KwArg struct {
	Name  string
	Value any // int64, float64, bool, string, nil, []int64 or tensor.DType
}

// Input is one tensor of a batch.
type Input struct {
	Name  string
	Size  []int64 // with the batch dimension
	DType tensor.DType
}

// Class is a module type with all its sizes fixed. Modules that are alike
// share their class.
type Class struct {
	// Layer is what the class is of torch.nn or of a library, or what a block of the
	// spec stands for; nil of all other blocks. Names are for printing alone.
	Layer    *nn.Layer
	Name     string // of a block; "" for a module of torch.nn
	Python   string // constructor call of a module of torch.nn: "nn.Linear(10, 20)"
	Params   []Param
	Buffers  []Param
	Attrs    []Param // other attributes that hold tensors, bound by SetAttr
	Children []Child // in the order of registration
	Forward  *Func
	Methods  []*Func // functions of the spec that use this class's modules
	Applied  []*Func // forwards of the torch.autograd.Functions that this class's functions apply

	Style *Style // in which parallelize_module divides it; nil: it does not

	ForwardGiven []KwArg // arguments that each call of a torch.nn module passes

	Quantized *Quantized // of a linear layer whose weight is quantized

	// Parametrized are the parameters of a wrapped module that have adapters: what these add
	// comes behind the arguments of its forward, the last parameter's first.
	Parametrized []string

	// Flat is the number of elements of the buffer whose views the parameters of
	// a recurrent layer become on the device; 0 of all other modules.
	Flat int64
}

// Param is a parameter or buffer of a class.
type Param struct {
	Name          string
	Size          []int64
	DType         tensor.DType
	Fixed         bool      // keeps its type when the model is converted (integers)
	Init          string    // of one that a block declares: zeros, ones or normal
	NonPersistent bool      // a buffer that is no part of the state dict: persistent=False
	Given         []float64 // the elements, where a list of numbers says them
	Tied          string    // path, from the class, of the parameter that stands in its place
	Frequencies   bool      // a buffer of inverse frequencies, which operators compute
	Blank         *int64    // the row of a table that starts as zeros; nil: none

	Elements int64 // that it stands for, if they are packed; 0: its own
}

// Child is a submodule.
type Child struct {
	Path  string // attribute path from the class: "conv1", "layers.3"
	Class *Class
	Ties  []Tie
}

// Tie replaces a parameter of a child by another one of the same class tree.
type Tie struct {
	Param  string // of the child
	Source string // path from the class: "wte.weight"
}

// FuncKind says how a function treats its arguments.
type FuncKind uint8

// The kinds of functions.
const (
	Module   FuncKind = iota // forward of a module: the caller keeps the arguments to the end
	Function                 // a plain function or method: the arguments move in
	StepFunc                 // the training step
)

// Func is a function.
type Func struct {
	Name   string
	Kind   FuncKind
	Params int      // the first slots
	Slots  []string // names of local variables
	Body   []Stmt

	File       string // that the lines of its statements are in
	NoAutocast bool   // the body runs with autocast off
	Merged     bool   // some parameters are one tensor, which the body knows by the first of them
	Remedy     string // what to write if an operator of it fails; "": nothing
	Globals    int    // the first slots are names of the script, which live on when it returns
	Cells      []int  // slots that a closure takes, which go after the others, in the order of their names

	Autograd *Autograd // of the forward of a torch.autograd.Function; nil otherwise
}

// Autograd makes a function the forward of a torch.autograd.Function: it runs
// without gradients, and its results get one node, whose gradients Backward
// computes. What forward returns beyond the results are tensors that it saves,
// then those that it keeps.
type Autograd struct {
	Class   *Class // holds the functions that forward and backward call, and no modules
	Row     *op.Op // the node; its Save lists the saved tensors
	Results int    // of forward
	Saved   []int  // forward's slots whose tensors ctx.save_for_backward keeps, as Row.Save
	Kept    []int  // forward's slots whose tensors become attributes of ctx
	Unkept  *Func  // of a function that keeps attributes only if the first input's gradient is wanted: its form otherwise; nil: it always does
	// Backward takes the gradients of the results, then the saved and the kept
	// tensors, and returns the gradients of the inputs.
	Backward *Func
}

// StmtKind is the kind of a statement.
type StmtKind uint8

// The statements.
const (
	Assign       StmtKind = iota // Targets = Value, or each its own of Values
	Append                       // Targets[0].append(Value)
	Extend                       // Targets[0] += Value, of lists
	ListNew                      // Targets[0] = []
	Del                          // del Targets
	Return                       // return Value, or the tuple of Values
	FastReturn                   // return so in eval mode without gradients; library modules only
	Expression                   // Value, for its effect
	SetAttr                      // the attribute at Path from self = Value
	Batch                        // Targets = next_batch()
	Backward                     // Value.backward()
	OptStep                      // Optimizer.step()
	ZeroGrad                     // Optimizer.zero_grad(set_to_none)
	EmptyCache                   // torch.cuda.empty_cache()
	UpdateScale                  // scaler.update()
	RateStep                     // Optimizer's scheduler: scheduler.step()
	Unscale                      // scaler.unscale_(Optimizer)
	ClipNorm                     // clip_grad_norm_(parameters of Optimizer, Number)
	ClipValue                    // clip_grad_value_(parameters of Optimizer, Number)
	ToDevice                     // the tensors of Optimizer.state go to the GPU
	KeepValue                    // Keep.List.append(Value) or Keep.List += Value
	UpdateEMA                    // ema.update_parameters(model)
	SetMode                      // Model.eval() or, unless Eval, Model.train()
	GradSync                     // Model.require_backward_grad_sync = not NoSync
	ScheduleStep                 // Targets[0] = []; schedule.step(inputs of the stage, target=..., losses=Targets[0])
)

// Stmt is one statement.
type Stmt struct {
	Kind    StmtKind
	Targets []int // slots; Unpack of a tuple goes left to right
	Unpack  bool
	Nest    []int // of Unpack, by item of the tuple: how many targets it is unpacked into again, 0 for one; nil if all are so
	Value   *Expr
	Values  []*Expr // of a return or an assignment of several

	InPlace   bool     // out += x: prints so
	Grad      GradMode // with torch.no_grad(), or with torch.enable_grad()
	Model     string   // of GradSync and SetMode
	Eval      bool     // of SetMode
	Last      bool     // of Batch: of the size of Eval.Last
	NoSync    bool     // of GradSync: gradients stay with their process
	Retain    bool
	Optimizer int // index into Job.Optimizers
	SetToNone bool
	Closure   *Func   // of OptStep: what step(closure) calls; its parameters are the names that it takes from around it
	Captured  []int   // of Closure, by parameter: the slot around it
	Number    float64 // the bound of ClipNorm and ClipValue
	Keep      *Keep   // of KeepValue
	Path      string  // of SetAttr
	Requires  *Expr   // a tensor: only if it requires grad
	Unless    bool    // of Requires: only if it does not
	Wants     int     // in the backward of a torch.autograd.Function: only if the gradient of the input before this one is wanted; 0: always
	Plain     bool    // outside of autocast
	Every     int64   // run in every n-th step; 0: always
	Begin     int64   // of Every: the number of the first step in which it runs; 0: Every, or the first of all if that is 0
	Line      int     // in the spec
	InEval    bool    // runs in eval mode only; in library modules
	Fast      bool    // runs in eval mode without gradients only; in library modules
}

// Rest is what the numbers of the steps in which a statement runs leave, divided by Every.
func (s *Stmt) Rest() int64 {
	if s.Every < 2 {
		return 0
	}
	return s.Begin % s.Every
}

// GradMode says whether operators are recorded for a backward pass.
type GradMode uint8

// The modes in which a statement runs.
const (
	GradAround GradMode = iota // that of the code around
	NoGrad
	EnableGrad
)

// Within is the mode of a statement, given the one around it.
func (m GradMode) Within(around bool) bool {
	if m == GradAround {
		return around
	}
	return m == EnableGrad
}

// Python is the context of a mode.
func (m GradMode) Python() string {
	return [...]string{NoGrad: "torch.no_grad()", EnableGrad: "torch.enable_grad()"}[m]
}

// Computes reports whether the statement is one that autocast covers: forward
// passes, losses and what else a step computes before its backward pass.
func (s *Stmt) Computes() bool {
	switch s.Kind {
	case Batch, Backward, OptStep, ZeroGrad, EmptyCache, UpdateScale, RateStep, Unscale, ClipNorm, ClipValue, ToDevice, KeepValue, UpdateEMA, GradSync, SetMode, Del, Return, ScheduleStep:
		return false
	}
	return !s.Plain
}

// ExprKind is the kind of an expression.
type ExprKind uint8

// The expressions.
const (
	Local     ExprKind = iota // a local variable
	Item                      // a local list's item, by Index (negative: from the end)
	Pop                       // a local list's pop()
	Attr                      // a parameter or buffer: Path from self
	CallOp                    // an operator
	CallMod                   // a submodule
	CallFun                   // a function of the spec
	CallModel                 // a model, by its name; in a step and its functions
	CallGrad                  // torch.autograd.grad, as Grad says; likewise
	Pick                      // item Index of a tuple result
	ListLit                   // a literal list
	Const                     // a number operand, or None
	TupleLit                  // a literal tuple
	Star                      // *Args[0], an item of a literal list or tuple
	Slice                     // the Items of a list or tuple, Args[0]; Path is how its bounds read
	Times                     // the Items of a list or tuple, Args[0], several times: Index
	Concat                    // two lists or two tuples, one behind the other
	Scalar                    // Args[0].item(): a number that is known only when the program runs
	Arith                     // arithmetic with such numbers; Path is the operator
)

// GradCall is a call of torch.autograd.grad, whose Args are the outputs, the inputs,
// then the gradients of the outputs, or none of those.
type GradCall struct {
	Outputs, Inputs int
	Retain, Create  bool // retain_graph and create_graph
	Retains         bool // retain_graph is given: without, it is as create_graph
}

// Expr is one expression.
type Expr struct {
	Kind  ExprKind
	Slot  int
	Index int
	Path  string // of Attr
	Items []int  // of Slice and Times: which items of the list they take
	Child int    // index into the class's children, of CallMod
	Func  *Func  // of CallFun
	Model string // of CallModel
	Base  bool   // of CallModel: without its adapters, as within PEFT's disable_adapter
	Lower bool   // of CallModel: under autocast, which ends with the call
	Last  bool   // of CallModel: for a batch of the size of Eval.Last
	Grad  *GradCall
	// Forward of CallMod is that of a library's module where it does other things
	// for these inputs than the class's; nil: it does not.
	Forward *Func

	Checkpoint *Checkpoint // of CallMod and CallFun

	Row     *op.Op // of CallOp
	Sig     *op.Sig
	OpArgs  any
	Given   []KwArg // non-tensor arguments that were given, for printing
	InPlace bool

	Args   []*Expr  // in evaluation order
	Names  []string // of CallMod: the keyword of each of Args, "" where it stands by its position; nil if all do
	Inputs []int    // of CallOp: for each of the row's inputs, the index into Args; -1 if absent
	Value  any      // of Const
}

// Reads reports whether e uses the local variable of a slot.
func (e *Expr) Reads(slot int) bool {
	switch e.Kind {
	case Local, Item, Pop:
		if e.Slot == slot {
			return true
		}
	}
	return slices.ContainsFunc(e.Args, func(a *Expr) bool { return a.Reads(slot) })
}

// Walk visits an expression and all in it.
func (e *Expr) Walk(f func(e *Expr)) {
	if e == nil {
		return
	}
	f(e)
	for _, a := range e.Args {
		a.Walk(f)
	}
}
