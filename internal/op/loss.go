package op

import "github.com/memplan/memplan/internal/tensor"

// LossArgs are the arguments that losses share.
type LossArgs struct {
	Reduction      string  `arg:"reduction"`
	IgnoreIndex    int64   `arg:"ignore_index"`
	LabelSmoothing float64 `arg:"label_smoothing"`
}

// CrossEntropy is log_softmax and nll_loss; the log-probabilities are what
// stays for the backward pass.
var CrossEntropy = define(Row{
	Name: "cross_entropy", Args: &LossArgs{}, Composite: true,
	Sig: "F.cross_entropy(input, target, weight: tensor? = None, *, ignore_index: int = -100, reduction: str(none|mean|sum) = 'mean', label_smoothing: float = 0.0)",
	Run: func(c *Call) {
		x, target, a := c.In[0], c.In[1], c.Args.(*LossArgs)
		if a.LabelSmoothing != 0 {
			c.Fail("label_smoothing is not modelled")
		}
		if target.Size == x.Size && target.DType.IsFloating() {
			c.Fail("class probabilities as the target are not modelled")
		}
		classes := 1
		if x.Rank() < 2 {
			classes = 0
		}
		logp := c.Do1(LogSoftmax, &SoftmaxArgs{Dim: classes, DType: &x.DType}, x)
		c.Return(c.Do1(NLLLoss, a, logp, target, c.Opt(2)))
		c.Drop(logp)
	},
	Source: "aten/src/ATen/native/LossNLL.cpp: cross_entropy_loss",
})

// NLLLoss is the negative log likelihood of (N, C) or (N, C, ...) inputs.
var NLLLoss = define(Row{
	Name: "nll_loss", Args: &LossArgs{}, Composite: true, Cast: CastFP32,
	Sig: "F.nll_loss(input, target, weight: tensor? = None, *, ignore_index: int = -100, reduction: str(none|mean|sum) = 'mean')",
	Run: func(c *Call) {
		x, target := c.In[0], c.In[1]
		want := x.Size
		if x.Rank() > 1 {
			want = want.Remove(1)
		} else {
			want = tensor.D()
		}
		if target.Size != want {
			c.Fail("target of shape %v does not fit input of shape %v; it must have shape %v", target.Size, x.Size, want)
		}
		if target.DType != tensor.Int64 && target.DType != tensor.Uint8 {
			c.Fail("target must be int64, not %v", target.DType)
		}
		row := nllLossForward
		if x.Rank() == 4 {
			row = nllLoss2dForward
		} else if x.Rank() > 2 {
			c.Fail("inputs of shape %v are not modelled; use (N, C) or (N, C, H, W)", x.Size)
		}
		outs := c.Do(row, c.Args, c.In...)
		c.Return(outs[0])
		c.Drop(outs[1])
	},
})

var (
	nllLossForward = define(Row{
		Name: "nll_loss_forward", Args: &LossArgs{}, Run: func(c *Call) {
			x, weight := c.In[0], c.Opt(2)
			if c.Args.(*LossArgs).Reduction == "none" && x.Rank() == 2 {
				out := c.NewShape(x.DType, x.Dim(0))
				c.Return(out, c.NewShape(x.DType))
				return
			}
			c.Return(c.NewShape(x.DType), c.NewShape(x.DType))
			c.contiguous(x)
			c.contiguous(c.In[1])
			c.contiguous(weight)
		},
		Save: []Save{In(0), In(1), In(2), Out(1)}, NoGrad: []int{1}, Node: "NllLossBackward0",
		Grad: func(b *Back) { // zeros in row-major order
			x := b.SavedIn[0]
			b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		},
		Source: "aten/src/ATen/native/cuda/Loss.cu",
	})
	nllLoss2dForward = define(Row{
		Name: "nll_loss2d_forward", Args: &LossArgs{}, Run: func(c *Call) {
			x := c.In[0]
			if c.Args.(*LossArgs).Reduction == "none" {
				out := c.NewShape(x.DType, x.Dim(0), x.Dim(2), x.Dim(3))
				c.Return(out, c.NewShape(x.DType))
				return
			}
			c.Return(c.NewShape(x.DType), c.NewShape(x.DType))
			c.contiguous(x)
			c.contiguous(c.In[1])
		},
		Save: []Save{In(0), In(1), In(2), Out(1)}, NoGrad: []int{1}, Node: "NllLoss2DBackward0",
		Grad: func(b *Back) {
			x := b.SavedIn[0]
			b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		},
		Source: "aten/src/ATen/native/cuda/NLLLoss2d.cu",
	})
)

// elementLoss is the Run of mse_loss and its like. With a reduction, PyTorch
// sizes the result like the input before it shrinks to a scalar: the storage
// of the loss stays as large as the input.
func elementLoss(c *Call) {
	x, l := c.In[0], c.elementwise(c.In[0], c.In[1])
	if c.In[1].Size != x.Size {
		c.Fail("target of shape %v does not have the input's shape %v; broadcasting in a loss is not modelled", c.In[1].Size, x.Size)
	}
	if c.Args.(*LossArgs).Reduction == "none" {
		c.Return(c.New(l, x.DType))
		return
	}
	n := tensor.Bytes(l.Numel() * x.DType.Size())
	out := c.NewIn(n, tensor.Contiguous(tensor.D()), x.DType)
	each := c.New(l, x.DType)
	all := make([]bool, l.Rank())
	for i := range all {
		all[i] = true
	}
	reduceScratch(c, each, all, x.DType.Accumulate().Size(), 4)
	c.Drop(each)
	c.Return(out)
}

// gradElementLoss is one kernel over gradient, input and target, into a
// row-major result.
func gradElementLoss(b *Back) {
	for i := range 2 {
		if b.Need(i) {
			b.Set(i, b.New(tensor.Contiguous(b.SavedIn[i].Size), b.SavedIn[0].DType))
		}
	}
}

const lossSig = "(input, target, *, reduction: str(none|mean|sum) = 'mean')"

var (
	_ = define(Row{
		Name: "mse_loss", Sig: "F.mse_loss" + lossSig, Args: &LossArgs{}, Cast: CastFP32, Run: elementLoss,
		Save: []Save{In(0), In(1)}, Node: "MseLossBackward0", Grad: gradElementLoss,
		Source: "aten/src/ATen/native/Loss.cpp, BinaryOps",
	})
	_ = define(Row{
		Name: "smooth_l1_loss", Sig: "F.smooth_l1_loss" + lossSig, Args: &LossArgs{}, Cast: CastFP32, Run: elementLoss,
		Save: []Save{In(0), In(1)}, Node: "SmoothL1LossBackward0", Grad: gradElementLoss,
		Source: "aten/src/ATen/native/Loss.cpp",
	})
)
