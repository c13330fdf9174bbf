package op

import "github.com/memplan/memplan/internal/tensor"

// NLLLoss is the negative log likelihood of (N, C) or (N, C, ...) inputs. What
// autocast converts is what it calls: after targets without gaps are made.
var NLLLoss = define(Op{
	Name: "nll_loss_nd", Args: &LossArgs{}, Composite: true,
	Sig: "F.nll_loss(input, target, weight: tensor? = None, *, ignore_index: int = -100, " + lossSig + ")",
	Run: func(c *Call) {
		x, target := c.In[0], c.In[1]
		want := tensor.D()
		if x.Rank() > 1 {
			want = x.Size.Remove(1)
		}
		if target.Size != want {
			c.Fail("target of shape %v does not fit input of shape %v; it must have shape %v", target.Size, x.Size, want)
		}
		if target.DType != tensor.Int64 && target.DType != tensor.Uint8 {
			c.Fail("target must be int64, not %v", target.DType)
		}
		c.checkClassWeight(x, c.Opt(2))
		switch x.Rank() {
		case 1, 2:
			c.Return(c.Do1(NLLLossOf, c.Args, x, target, c.Opt(2)))
		case 4:
			c.Return(c.Do1(nllLoss2d, c.Args, x, target, c.Opt(2)))
		default:
			c.nllSpatial(x, target)
		}
	},
	Source: "aten/src/ATen/native/LossNLL.cpp: nll_loss_nd",
})

// checkClassWeight refuses an input without a dimension of classes, and a
// weight that is not one number for each class.
func (c *Call) checkClassWeight(x, weight *Tensor) {
	if x.Rank() == 0 {
		c.Fail("the input needs a dimension of classes; it is a single number")
	}
	classes := x.Dim(min(1, x.Rank()-1))
	if weight != nil && weight.Size != tensor.D(classes) {
		c.Fail("weight of shape %v is not one number for each of %d classes", weight.Size, classes)
	}
}

// nllOf defines a loss of one kernel, which returns the loss and drops the sum of
// the weights, which autograd keeps.
func nllOf(name string, forward *Op) *Op {
	return define(Op{
		Name: name, Args: &LossArgs{}, Composite: true, Cast: CastFP32, Run: func(c *Call) {
			outs := c.Do(forward, c.Args, c.In[0], c.In[1], c.Opt(2))
			c.Return(outs[0])
			c.Drop(outs[1])
		},
		Source: "aten/src/ATen/native/LossNLL.cpp: nll_loss, nll_loss2d; aten/src/ATen/autocast_mode.h: AT_FORALL_FP32",
	})
}

// nllSpatial views other numbers of dimensions as images of height 1.
func (c *Call) nllSpatial(x, target *Tensor) {
	view := func(t *Tensor, shape ...int64) *Tensor {
		rows := c.Do1(Contiguous, nil, t)
		v := c.Local(c.Do1(View, &ShapeArgs{Shape: shape}, rows))
		c.Drop(rows)
		return v
	}
	if x.Numel() == 0 {
		c.Fail("a loss of no elements is not modelled")
	}
	size := target.Size
	x = view(x, x.Dim(0), x.Dim(1), 1, -1)
	target = view(target, target.Dim(0), 1, -1)
	c.Return(c.Do1(nllLoss2d, c.Args, x, target, c.Opt(2)))
	if out := c.Out[0]; c.Args.(*LossArgs).Reduction == "none" {
		c.Out[0] = c.Do1(View, &ShapeArgs{Shape: size.Slice()}, out)
		c.Drop(out)
	}
}

// The functions of (N, C) and of images, and their kernels.
var (
	NLLLossOf = nllOf("nll_loss", NLLLossForward)
	nllLoss2d = nllOf("nll_loss2d", NLLLoss2dForward)

	NLLLossForward = define(Op{
		Name: "nll_loss_forward", Indices: classes(-1), Args: &LossArgs{}, Eval: evalNLL, Run: func(c *Call) {
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
		Grad:   gradNLL,
		Source: "aten/src/ATen/native/cuda/Loss.cu",
	})
	NLLLoss2dForward = define(Op{
		Name: "nll_loss2d_forward", Indices: classes(1), Args: &LossArgs{}, Eval: evalNLL, Run: func(c *Call) {
			x := c.In[0]
			none := c.Args.(*LossArgs).Reduction == "none"
			if c.Env().Deterministic && !none {
				c.Fail("this loss over more than two dimensions has no deterministic form in PyTorch; it would raise an error")
			}
			total := c.grown(x.DType) // resized before the loss is
			if none {
				c.Return(c.grown(x.DType, x.Dim(0), x.Dim(2), x.Dim(3)), total)
				return
			}
			c.Return(c.grown(x.DType), total)
			c.contiguous(x)
			c.contiguous(c.In[1])
		},
		Save: []Save{In(0), In(1), In(2), Out(1)}, NoGrad: []int{1}, Node: "NllLoss2DBackward0",
		Grad:   gradNLL,
		Source: "aten/src/ATen/native/cuda/NLLLoss2d.cu",
	})
)

// gradNLL scatters into zeros in row-major order. The kernels want a row-major
// target with a reduction, and without one, for rows, a row-major gradient.
func gradNLL(b *Back) {
	x := b.SavedIn(0)
	b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
	switch {
	case b.Args.(*LossArgs).Reduction != "none":
		b.contiguous(b.SavedIn(1))
	case x.Rank() == 2:
		b.contiguous(b.Grads[0])
	}
}
