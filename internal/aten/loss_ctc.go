package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// CTCArgs are the arguments of ctc_loss.
type CTCArgs struct {
	LossArgs
	Blank        int64 `arg:"blank"`
	ZeroInfinity bool  `arg:"zero_infinity"`
}

// CTCLoss of padded targets runs PyTorch's own kernels; cuDNN takes only targets
// that are joined in one vector. Its memory depends on the longest target.
var CTCLoss = define(op.Op{
	Name: "ctc_loss", Args: &CTCArgs{}, Composite: true,
	Sig: "F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank: int = 0, " + lossSig + ", zero_infinity: bool = False)",
	Run: func(c *op.Call) {
		x, targets, lengths, a := c.In[0], c.In[1], c.In[3], c.Args.(*CTCArgs)
		switch {
		case x.Rank() != 3 || x.Numel() == 0:
			c.Fail("log_probs must be (time, batch, classes), not of shape %v", x.Size)
		case x.DType != tensor.Float32 && x.DType != tensor.Float64:
			c.Fail("ctc_loss is not implemented for %v, PyTorch says; convert log_probs to float32", x.DType)
		case targets.DType != tensor.Int64 && targets.DType != tensor.Int32:
			c.Fail("targets must be int64 or int32, not %v", targets.DType)
		case targets.Rank() == 1:
			c.Fail("targets that are joined in one vector are not modelled: how long the longest is, and whether cuDNN takes them, depends on the data; pad them to (batch, length)")
		case targets.Rank() != 2 || targets.Dim(0) != x.Dim(1):
			c.Fail("targets must be (batch, length) for a batch of %d, not of shape %v", x.Dim(1), targets.Size)
		}
		for _, t := range c.In[2:4] {
			if t.Size != tensor.D(x.Dim(1)) || t.DType.IsFloating() || t.DType == tensor.Bool {
				c.Fail("lengths must be an integer for each of a batch of %d, not %v of shape %v", x.Dim(1), t.DType, t.Size)
			}
		}
		outs := c.Do(CTCNative, a, c.In...)
		res := c.Local(outs[0])
		c.Drop(outs[1])
		if a.ZeroInfinity { // where(res == inf, zeros, res)
			zero := c.NewShape(res.DType)
			infinite := c.Do1(Equal, &BinaryArgs{Other: op.Number{Set: true, Float: true}}, res)
			finite := c.Do1(WhereSelf, nil, infinite, zero, res)
			c.Early(res)
			c.Drop(infinite, zero)
			res = c.Local(finite)
		}
		if a.Reduction != "mean" {
			c.Return(reduceLoss(c, res))
			return
		}
		long := c.Do1(To, &ToCopyArgs{DType: res.DType}, lengths) // the mean of the loss of each letter
		n := c.Local(c.Do1(ClampMin, &ClampArgs{Min: op.Number{Set: true}}, long))
		c.Drop(long)
		each := c.Do1(Div, &BinaryArgs{}, res, n)
		c.Return(reduceLoss(c, each))
		c.Drop(each)
	},
	Source: "aten/src/ATen/native/LossCTC.cpp: ctc_loss_impl, _use_cudnn_ctc_loss",
})

// CTCNative gives the loss of each sample and what was summed on the way: a
// number for each step of time and each letter, with a blank around every one.
var CTCNative = define(op.Op{
	Name: "_ctc_loss", Indices: op.Classes(-1), Args: &CTCArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		ctcOffsets(c)
		alpha := ctcTable(c)
		c.Return(c.NewShape(x.DType, x.Dim(1)), alpha)
	},
	Save: []op.Save{op.In(0), op.In(1), op.Out(0), op.Out(1)}, NoGrad: []int{1}, Node: "CtcLossBackward0",
	Grad: func(b *op.Back) {
		x := b.SavedIn(0)
		b.In = []*op.Tensor{x, b.SavedIn(1)}
		mark := b.Mark()
		ctcOffsets(&b.Call)
		b.Local(ctcTable(&b.Call))
		b.Set(0, b.NewShape(x.DType, x.Size.Slice()...))
		b.DropTo(mark)
	},
	Eval: &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			return m.OnHost(func(a op.Arrays) {
				loss := ctcOf(a, c.Args, c.In, ctcLengths{a.Get(c.In[2]), a.Get(c.In[3])})
				losses, paths, err := loss.Losses()
				if err != nil {
					a.Fail(err)
				}
				a.Put(c.Out[0], losses)
				a.Put(c.Out[1], paths)
				m.Note(c.Out[1], ctcLengths{loss.Steps, loss.Lengths})
			})
		},
		Backward: func(m op.Machine, b *op.Back) error {
			return m.OnHost(func(a op.Arrays) {
				if r := a.Wanted(b, 0); r != nil {
					loss := ctcOf(a, b.Args, b.SavedIns(), op.Noted[ctcLengths](m, b.SavedOut(1)))
					a.Put(r, loss.Grad(a.Get(b.SavedOut(0)), a.Get(b.Grads[0]), b.Args.(*CTCArgs).ZeroInfinity))
				}
			})
		},
	},
	NotModelled: "how long the longest target of a ctc_loss is; taken to be as long as targets are wide",
	Source:      "aten/src/ATen/native/cuda/LossCTC.cu: ctc_loss_gpu_template, ctc_loss_backward_gpu_template",
})

// ctcLengths are those of inputs and targets, which the backward pass reads on the host.
type ctcLengths struct{ steps, letters []float64 }

func ctcOf(a op.Arrays, args any, in []*op.Tensor, n ctcLengths) *array.CTC {
	return &array.CTC{LogProbs: a.Array(in[0]), Targets: a.Array(in[1]), Steps: n.steps, Lengths: n.letters, Blank: int(args.(*CTCArgs).Blank)}
}

// ctcOffsets are the lengths of targets and inputs on the device and where each
// target begins, which was counted on the CPU in a variable that is older than
// theirs; they live to the end of the row.
func ctcOffsets(c *op.Call) {
	vec := func() *op.Tensor { return c.NewShape(tensor.Int64, c.In[0].Dim(1)) }
	targets, inputs, begins := vec(), vec(), vec()
	c.Local(begins)
	c.Local(targets)
	c.Local(inputs)
}

func ctcTable(c *op.Call) *op.Tensor {
	x, targets := c.In[0], c.In[1]
	return c.NewShape(x.DType, x.Dim(1), x.Dim(0), 2*targets.Dim(1)+1)
}
