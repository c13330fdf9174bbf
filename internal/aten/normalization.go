package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// BatchNormArgs are the arguments of batch_norm.
type BatchNormArgs struct {
	Batch    bool    // batch statistics in any mode: there are no running ones
	Running  bool    // running statistics in any mode
	Momentum float64 `arg:"momentum"`
	Eps      float64 `arg:"eps"`

	Cumulative bool // momentum None: running statistics are means over all batches
}

func (a *BatchNormArgs) training(c *op.Call) bool { return a.Batch || !a.Running && c.Env().Training }

// BatchNorm chooses between cuDNN and PyTorch's own kernels
// (_batch_norm_impl_index in aten/src/ATen/native/Normalization.cpp). Inputs
// are input, weight, bias, running_mean, running_var.
var BatchNorm = define(op.Op{
	Name: "batch_norm", Takes: normTypes, Args: &BatchNormArgs{}, Composite: true,
	Run: func(c *op.Call) {
		x, w, bias := c.In[0], c.Opt(1), c.Opt(2)
		if x.Rank() < 2 {
			c.Fail("batch_norm needs at least two dimensions, not shape %v", x.Size)
		}
		for i := 3; i <= 4; i++ {
			if t := c.Opt(i); t != nil && c.NeedsGrad(t) {
				c.Fail("running_mean and running_var must not require grad, PyTorch says")
			}
		}
		a := c.Args.(*BatchNormArgs)
		in, row, mark := c.In, NativeBatchNorm, c.Mark()
		if usesCudnnBatchNorm(c, a, x, w, bias) {
			row = CudnnBatchNorm
			in = append([]*op.Tensor{c.Local(inSuggestedFormat(c, x))}, c.In[1:]...)
		}
		outs := c.Do(row, a, in...)
		c.Return(outs[0])
		c.DropTo(mark)
		c.Drop(outs[1:]...)
	},
	NotModelled: "cuDNN's reserve space of batch normalization in channels-last layout",
})

// CountBatch is num_batches_tracked.add_(1), which a batch norm does in training
// alone (torch/nn/modules/batchnorm.py).
var CountBatch = define(op.Op{Name: "add_.batch", Run: func(*op.Call) {}, InPlace: true, Eval: &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	if !c.Env().Training {
		return nil
	}
	return m.Apply(kernel.Affine, c.In[0], c.In[:1], 1, 1)
}}})

// usesCudnnBatchNorm: cuDNN takes batches of float32 and, with float32
// weights, of float16, up to a limit of samples.
func usesCudnnBatchNorm(c *op.Call, a *BatchNormArgs, x, w, bias *op.Tensor) bool {
	training := a.training(c)
	limit := int64(65535)
	if training {
		limit = 880801
	}
	stats := (c.Opt(3) != nil && c.Opt(4) != nil) || (c.Opt(3) == nil && c.Opt(4) == nil && training)
	return w != nil && bias != nil && x.DType != tensor.BFloat16 && w.DType != tensor.BFloat16 &&
		(x.DType != tensor.Float16 || w.DType == tensor.Float32) &&
		stats && x.Rank() >= 3 && x.Dim(0) <= limit
}

// channelsLastKernels reports whether the backward kernels treat x as
// channels-last: so it lies, or there is one pixel a channel
// (batch_norm_use_channels_last_kernels).
func channelsLastKernels(x *op.Tensor) bool { return x.IsChannelsLastContiguous() || onePixel(x) }

// channelsLastStatistics reports the same of the forward kernels, which look at
// the plain order first, that images of one channel have too, and take no
// volumes (batch_norm_choose_impl).
func channelsLastStatistics(x *op.Tensor) bool {
	if x.IsContiguous() {
		return onePixel(x)
	}
	return x.Rank() == 4 && x.IsChannelsLastContiguous()
}

// onePixel reports whether the channels of x lie side by side in plain order.
func onePixel(x *op.Tensor) bool { return x.IsContiguous() && x.Stride.At(1) == 1 }

// welford is the size in bytes of an accumulator of mean and variance: mean,
// sum of squares, count as integer and as float.
const welford = 16

// inSuggestedFormat returns x, or a differentiable copy of it, in the memory
// format that its strides suggest.
func inSuggestedFormat(c *op.Call, x *op.Tensor) *op.Tensor {
	if x.IsChannelsLast() && !x.IsContiguous() {
		if x.IsChannelsLastContiguous() {
			return c.Keep(x)
		}
		return c.Do1(Clone, &CloneArgs{Format: tensor.LastFormat(x.Rank())}, x)
	}
	return c.Do1(Contiguous, nil, x)
}

// statistics allocates the scratch with which channels-last kernels reduce
// very tall inputs in two steps: values a channel and block, and semaphores
// (flexible_launch_configs in Normalization.cuh). It is freed at once.
func statistics(c *op.Call, x *op.Tensor, values int64) {
	const maxThreads, tile, perThread, maxBlocks = 512, 32, 16, 128
	ch := x.Dim(1)
	rows := x.Numel() / max(ch, 1)
	width := min(lastPow2(ch), tile)
	height := min(lastPow2(tensor.DivUp(rows, perThread)), maxThreads/width)
	if width*height != maxThreads {
		width = min(lastPow2(ch), maxThreads/height)
	}
	blocks := min(tensor.DivUp(rows, height*perThread), maxBlocks)
	if blocks < 8 || c.Env().NoKernels() {
		return
	}
	staging := c.NewShape(x.DType.Accumulate(), values*ch*blocks)
	semaphores := c.NewShape(tensor.Int32, tensor.DivUp(ch, width))
	c.Drop(semaphores, staging)
}

// The kernels of batch_norm.
var (
	NativeBatchNorm = define(op.Op{
		Name: "native_batch_norm", Args: &BatchNormArgs{}, Eval: evalBatchNorm, Run: func(c *op.Call) {
			x := c.In[0]
			acc := x.DType.Accumulate()
			c.Return(c.NewLike(x), c.NewShape(acc, x.Dim(1)), c.NewShape(acc, x.Dim(1)))
			last := channelsLastStatistics(x)
			mark := c.Mark()
			switch {
			case !c.Args.(*BatchNormArgs).training(c):
			case last:
				statistics(c, x, 4)
			case !x.IsContiguous(): // var_mean, over a float32 copy of bfloat16 (make_reduction takes float16 as it is)
				y := x
				if x.DType == tensor.BFloat16 {
					y = c.Local(c.New(x.LikeDense(), acc))
				}
				dims := make([]bool, x.Rank())
				for i := range dims {
					dims[i] = i != 1
				}
				reduceScratch(c, y, dims, welford, 2)
				c.DropTo(mark)
			}
			if !last && !x.IsContiguous() { // batch_norm_elementwise in any layout: 1 and 0 in place of weight and bias
				for i := 1; i <= 2; i++ {
					if !c.Has(i) && !c.Env().NoKernels() {
						c.Local(c.NewShape(acc))
					}
				}
			}
		},
		Save: []op.Save{op.In(0), op.In(3), op.In(4), op.In(1), op.Out(1), op.Out(2)}, NoGrad: []int{1, 2}, Node: "NativeBatchNormBackward0",
		Grad: gradBatchNorm, Source: "aten/src/ATen/native/cuda/Normalization.cu",
	})
	CudnnBatchNorm = define(op.Op{
		Name: "cudnn_batch_norm", Args: &BatchNormArgs{}, Eval: evalBatchNorm, Run: func(c *op.Call) {
			x, n := c.In[0], int64(0)
			if c.Args.(*BatchNormArgs).training(c) {
				n = x.Dim(1)
			}
			acc := x.DType.Accumulate()
			c.Return(c.NewLike(x), c.NewShape(acc, n), c.NewShape(acc, n))
		},
		Save: []op.Save{op.In(0), op.In(3), op.In(4), op.In(1), op.Out(1), op.Out(2)}, NoGrad: []int{1, 2}, Node: "CudnnBatchNormBackward0",
		Grad: func(b *op.Back) { // cuDNN always computes all three
			if !b.Args.(*BatchNormArgs).training(&b.Call) {
				gradBatchNorm(b)
				return
			}
			x, w := b.SavedIn(0), b.SavedIn(1)
			format := tensor.ContiguousFormat
			if x.IsChannelsLastContiguous() && !x.IsContiguous() {
				format = tensor.LastFormat(x.Rank())
			}
			b.Local(b.Do1(Contiguous, &CloneArgs{Format: format}, b.Grads[0]))
			grads := []*op.Tensor{b.NewLike(x), b.NewShape(w.DType, x.Dim(1)), b.NewShape(w.DType, x.Dim(1))}
			for i, g := range grads {
				b.Set(i, g)
			}
		},
		Source: "aten/src/ATen/native/cudnn/BatchNorm.cpp",
	})
)

// flatPixels copies t for the row's duration unless its spatial dimensions can
// be seen as one.
func flatPixels(c *op.Call, t *op.Tensor) {
	n := int64(1)
	for i := 2; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	if _, ok := t.View(tensor.D(t.Dim(0), t.Dim(1), n)); !ok {
		c.Rearranged(t, tensor.Contiguous(t.Size))
	}
}

// gradBatchNorm is batch_norm_backward_cuda: one fused kernel, or sums over
// each channel and then the input's gradient.
func gradBatchNorm(b *op.Back) {
	x, g, w := b.SavedIn(0), b.Grads[0], b.SavedIn(1)
	ch := x.Dim(1)
	training := b.Args.(*BatchNormArgs).training(&b.Call)
	sums := training || b.Need(1) || b.Need(2)
	if sums && b.Need(0) && !channelsLastKernels(x) {
		if m := b.SavedIn(3); m != nil && w != nil && w.DType == x.DType && m.DType != x.DType {
			b.Fail("expected running_mean to have type %s but got %s, PyTorch says", x.DType, m.DType)
		}
		flatPixels(&b.Call, x)
		flatPixels(&b.Call, g)
		b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		for i := 1; i <= 2; i++ {
			if b.Need(i) {
				b.Set(i, b.NewLike(w))
			}
		}
		return
	}
	acc := x.DType.Accumulate()
	if invstd := b.SavedOut(2); invstd.Numel() == 0 { // cuDNN keeps none outside of training
		b.Scratch(tensor.Bytes(ch * acc.Size()))
	}
	last := channelsLastKernels(x) && channelsLastKernels(g)
	if sums && (last || b.Need(0)) {
		b.Scratch(tensor.Bytes(ch * acc.Size())) // sum of dy
		b.Scratch(tensor.Bytes(ch * acc.Size())) // sum of dy·(x−mean)
	}
	for i := 1; i <= 2; i++ {
		if sums && w != nil && (last || b.Need(i)) {
			b.Set(i, b.NewShape(w.DType, ch))
		}
	}
	if sums && last {
		statistics(&b.Call, x, 2)
	}
	if b.Need(0) {
		b.Set(0, b.New(tensor.InFormat(x.Size, training && x.IsChannelsLast()), x.DType))
	}
}

// normTypes wants floats, and weights of the type of the input, or of float32 for the 16-bit
// types.
func normTypes(c *op.Call) {
	x := c.In[0]
	defer op.Floats(c)
	for _, t := range c.In[1:] {
		if t != nil && t.DType != x.DType && !(x.DType.IsHalf() && t.DType == tensor.Float32) {
			c.Fail("takes weights and statistics of %v, or of float32 for 16-bit types, not %v, PyTorch says", x.DType, t.DType)
		}
	}
}

// NormFunctionArgs are the arguments of F.batch_norm and F.instance_norm.
type NormFunctionArgs struct {
	Training bool    `arg:"training"`
	Use      bool    `arg:"use_input_stats"`
	Momentum float64 `arg:"momentum"`
	Eps      float64 `arg:"eps"`
}

// Statistics is which tensor of the call are the running statistics that it updates.
func (*NormFunctionArgs) Statistics() int { return 1 }

// The norms of torch.nn.functional with statistics of their own.
var (
	_ = define(op.Op{
		Name: "batch_norm.any", Args: &NormFunctionArgs{}, Composite: true,
		Sig: "F.batch_norm(input, running_mean: tensor?, running_var: tensor?, weight: tensor? = None, bias: tensor? = None, training: bool = False, " +
			"momentum: float = 0.1, eps: float = 1e-05)",
		Run: func(c *op.Call) {
			a := c.Args.(*NormFunctionArgs)
			normFunction(c, BatchNorm, &BatchNormArgs{Batch: a.Training, Running: !a.Training, Momentum: a.Momentum, Eps: a.Eps}, !a.Training)
		},
		Source: "torch/nn/functional.py: batch_norm",
	})
	_ = define(op.Op{
		Name: "instance_norm.any", Args: &NormFunctionArgs{}, Composite: true,
		Sig: "F.instance_norm(input, running_mean: tensor? = None, running_var: tensor? = None, weight: tensor? = None, bias: tensor? = None, " +
			"use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05)",
		Run: func(c *op.Call) {
			a := c.Args.(*NormFunctionArgs)
			normFunction(c, InstanceNorm, &InstanceNormArgs{Batch: a.Use, Running: !a.Use, Momentum: a.Momentum, Eps: a.Eps}, !a.Use)
		},
		Source: "torch/nn/functional.py: instance_norm",
	})
)

// normFunction calls a norm, whose weight and bias come before the statistics.
func normFunction(c *op.Call, r *op.Op, args any, running bool) {
	x, mean, variance := c.In[0], c.Opt(1), c.Opt(2)
	if running && (mean == nil || variance == nil) {
		c.Fail("statistics that are not the input's need running_mean and running_var")
	}
	for i := 1; i < len(c.In); i++ {
		if t := c.In[i]; t != nil && (x.Rank() < 2 || t.Rank() != 1 || t.Dim(0) != x.Dim(1)) {
			c.Fail("statistics, weight and bias have one number for each channel of shape %v, not shape %v", x.Size, t.Size)
		}
	}
	c.Return(c.Do1(r, args, x, c.Opt(3), c.Opt(4), mean, variance))
}

// InstanceNormArgs are the arguments of instance_norm.
type InstanceNormArgs struct {
	Batch, Running bool // statistics of the input, or running ones, in any mode
	Momentum, Eps  float64
}

// InstanceNorm is batch_norm with every sample's channels as channels of one
// sample. Inputs are those of batch_norm.
var InstanceNorm = define(op.Op{
	Name: "instance_norm", Args: &InstanceNormArgs{}, Composite: true, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*InstanceNormArgs)
		if x.Rank() < 3 {
			c.Fail("instance_norm needs at least three dimensions, not shape %v", x.Size)
		}
		n, ch := x.Dim(0), x.Dim(1)
		shape := x.Size.Slice()
		shape[0], shape[1] = 1, n*ch
		in := make([]*op.Tensor, 5)
		for i := 1; i < 5; i++ {
			t := c.Opt(i)
			if t == nil {
				continue
			}
			mark := c.Mark()
			if i >= 3 && c.Opt(1) == nil && t.DType != x.DType && c.Env().Torch.Has(torchver.InstanceStatsConverted) {
				t = c.Local(c.Do1(To, &ToCopyArgs{DType: x.DType}, t))
			}
			in[i] = c.Do1(Repeat, &RepeatArgs{Repeats: []int64{n}}, t)
			c.DropTo(mark)
			c.Local(in[i])
		}
		row := c.Do1(Contiguous, nil, x)
		in[0] = c.Local(c.Do1(View, &ShapeArgs{Shape: shape}, row))
		c.Drop(row)
		norm := &BatchNormArgs{Batch: a.Batch, Running: a.Running, Momentum: a.Momentum, Eps: a.Eps}
		out := c.Local(c.Do1(BatchNorm, norm, in...))
		for i := 3; i < 5; i++ {
			if in[i] == nil || !norm.training(c) && c.Env().Torch.Has(torchver.InstanceStatsStay) {
				continue
			}
			v := c.Do1(View, &ShapeArgs{Shape: []int64{n, ch}}, in[i])
			mean := c.Do1(Mean, &ReduceArgs{Dim: []int64{0}}, v)
			mark := c.Mark()
			stat := mean
			if d := c.In[i].DType; d != mean.DType {
				stat = c.Local(c.Do1(To, &ToCopyArgs{DType: d}, mean))
			}
			c.Drop(c.Do1(CopyInPlace, nil, c.In[i], stat))
			c.DropTo(mark)
			c.Drop(mean, v)
		}
		c.Return(c.Do1(View, &ShapeArgs{Shape: x.Size.Slice()}, out))
	},
	Source: "aten/src/ATen/native/Normalization.cpp: instance_norm",
})

// images adds a tensor of images as [N, C, S].
func images(l *op.Launch, t *op.Tensor) {
	if t == nil {
		l.Seen(nil)
		return
	}
	l.Seen(t, t.Dim(0), t.Dim(1), pixels(t))
}

// pixels is how many each channel of images has.
func pixels(t *op.Tensor) int64 {
	n := int64(1)
	for i := 2; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	return n
}

// normalized is a layer_norm or group_norm of any strides.
func normalized(of func(args any, size []int) (*array.Normalization, float64)) *op.Eval {
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		x := a.Get(c.In[0])
		n, eps := of(c.Args, c.In[0].Size.Ints())
		mean, variance, _ := n.Moments(x)
		rstd := array.Rstd(variance, eps)
		a.Put(c.Out[0], n.Forward(x, mean, rstd, a.Get(c.Opt(1)), a.Get(c.Opt(2))))
		a.Put(c.Out[1], mean)
		a.Put(c.Out[2], rstd)
	}, func(a op.Arrays, b *op.Back) {
		x := b.SavedIn(0)
		n, _ := of(b.Args, x.Size.Ints())
		normGrads(a, b, n, a.Get(b.SavedOut(1)), a.Get(b.SavedOut(2)), true)
	})
}

// normGrads computes the gradients of input, weight and bias.
func normGrads(a op.Arrays, b *op.Back, n *array.Normalization, mean, rstd []float64, own bool) {
	gx, gw, gb := n.Backward(a.Get(b.SavedIn(0)), a.Get(b.Grads[0]), mean, rstd, a.Get(b.SavedIn(1)), own)
	for i, g := range [][]float64{gx, gw, gb} {
		a.Put(a.Wanted(b, i), g)
	}
}

// momentum is the part of this batch in running statistics; without one they are means
// over all batches so far.
func (a *BatchNormArgs) momentum(m op.Machine, mean *op.Tensor) float64 {
	if !a.Cumulative || mean == nil {
		return a.Momentum
	}
	batches := op.Noted[int](m, mean) + 1
	m.Note(mean, batches)
	return 1 / float64(batches)
}

// evalBatchNorm is batch_norm. Its kernel does not know the derivative with statistics
// that are not the batch's own.
var evalBatchNorm = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a := c.Args.(*BatchNormArgs)
		training := a.training(c)
		l := op.Launch{On: m}
		images(&l, c.Out[0])
		for _, t := range c.Out[1:3] {
			if t.Numel() == 0 {
				t = nil
			}
			l.Add(t)
		}
		images(&l, c.In[0])
		l.Add(c.Opt(1), c.Opt(2), c.Opt(3), c.Opt(4))
		if l.Err != nil {
			return l.Err
		}
		momentum := a.Momentum
		if training {
			momentum = a.momentum(m, c.Opt(3))
		}
		return l.Run(kernel.BatchNorm, []int64{op.Flag(training)}, momentum, a.Eps)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		if !b.Args.(*BatchNormArgs).training(&b.Call) {
			return op.ErrView
		}
		l := op.Launch{On: m}
		images(&l, m.Wanted(b, 0))
		l.Add(m.Wanted(b, 1), m.Wanted(b, 2))
		images(&l, b.Grads[0])
		images(&l, b.SavedIn(0))
		l.Add(b.SavedOut(1), b.SavedOut(2), b.SavedIn(1))
		return l.Run(kernel.BatchNormGrad, []int64{1})
	},
}).Otherwise(batchNormOnHost)

var batchNormOnHost = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		return m.OnHost(func(a op.Arrays) {
			args, x := c.Args.(*BatchNormArgs), a.Get(c.In[0])
			n := array.OverChannels(c.In[0].Size.Ints())
			running, spread := a.Get(c.Opt(3)), a.Get(c.Opt(4))
			var mean, rstd []float64
			if args.training(c) {
				var variance []float64
				var count float64
				mean, variance, count = n.Moments(x)
				rstd = array.Rstd(variance, args.Eps)
				if running != nil {
					momentum := args.momentum(m, c.In[3])
					for k := range mean {
						running[k] += momentum * (mean[k] - running[k])
						spread[k] += momentum * (variance[k]*count/(count-1) - spread[k])
					}
					a.Put(c.In[3], running)
					a.Put(c.In[4], spread)
				}
			} else {
				mean, rstd = running, array.Rstd(spread, args.Eps)
			}
			a.Put(c.Out[0], n.Forward(x, mean, rstd, a.Get(c.Opt(1)), a.Get(c.Opt(2))))
			for i, v := range [][]float64{mean, rstd} {
				if t := c.Out[i+1]; t.Numel() > 0 {
					a.Put(t, v)
				}
			}
		})
	},
	Backward: func(m op.Machine, b *op.Back) error {
		return m.OnHost(func(a op.Arrays) {
			args, n := b.Args.(*BatchNormArgs), array.OverChannels(b.SavedIn(0).Size.Ints())
			if args.training(&b.Call) {
				normGrads(a, b, n, a.Get(b.SavedOut(1)), a.Get(b.SavedOut(2)), true)
				return
			}
			normGrads(a, b, n, a.Get(b.SavedIn(3)), array.Rstd(a.Get(b.SavedIn(4)), args.Eps), false)
		})
	},
}
