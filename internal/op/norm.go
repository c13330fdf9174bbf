package op

import "github.com/memplan/memplan/internal/tensor"

// LayerNormArgs are the arguments of layer_norm.
type LayerNormArgs struct {
	Shape []int64 `arg:"normalized_shape"`
	Eps   float64 `arg:"eps"`
}

// LayerNorm normalizes over the last dimensions. Mean and reciprocal standard
// deviation are kept in the accumulation type.
var LayerNorm = define(Op{
	Name: "layer_norm", Args: &LayerNormArgs{}, Cast: CastFP32, Composite: true,
	Sig: "F.layer_norm(input, normalized_shape: ints, weight: tensor? = None, bias: tensor? = None, eps: float = 1e-05)",
	Run: func(c *Call) {
		outs := c.Do(NativeLayerNorm, c.Args, c.In...)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2])
	},
})

// NativeLayerNorm is the kernel of layer_norm, which keeps mean and rstd.
var NativeLayerNorm = define(Op{
	Name: "native_layer_norm", Takes: (*Call).floatsOfOneType, Args: &LayerNormArgs{}, Eval: evalLayerNorm, Run: func(c *Call) {
		x, shape := c.In[0], c.Args.(*LayerNormArgs).Shape
		rows := c.normRows(x, shape)
		x = c.contiguous(x)
		y := c.New(tensor.Contiguous(x.Size), x.DType)
		acc := x.DType.Accumulate()
		c.Return(y, c.NewShape(acc, rows), c.NewShape(acc, rows))
	},
	Save:   []Save{In(2), In(0), In(1), Out(1), Out(2)},
	NoGrad: []int{1, 2}, Node: "NativeLayerNormBackward0",
	Grad: func(b *Back) { // layer_norm_backward_cuda
		x, w, bias := b.SavedIn(0), b.SavedIn(1), b.SavedIn(2)
		b.contiguous(x)
		if b.Need(0) {
			b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		}
		var dw, db *Tensor
		if b.Need(1) {
			dw = b.NewLike(w)
			b.Set(1, dw)
		}
		if b.Need(2) {
			db = b.NewLike(bias)
			b.Set(2, db)
		}
		b.contiguous(b.Grads[0])
		b.layerNormPartials(x, b.normRows(x, b.Args.(*LayerNormArgs).Shape), dw != nil, db != nil)
	},
	Source: "aten/src/ATen/native/cuda/layer_norm_kernel.cu",
})

// normRows checks the normalized shape and returns the number of rows.
func (c *Call) normRows(x *Tensor, shape []int64) int64 {
	k := x.Rank() - len(shape)
	n := int64(1)
	for i, s := range shape {
		if k < 0 || x.Dim(k+i) != s {
			c.Fail("normalized_shape %s does not match the last dimensions of shape %v", tensor.SizeString(shape), x.Size)
		}
		n *= s
	}
	return x.Numel() / max(n, 1)
}

// layerNormPartials allocates the partial sums with which the weight
// gradients of very many short rows are formed in two steps
// (LaunchGammaBetaBackwardCUDAKernel).
func (b *Back) layerNormPartials(x *Tensor, rows int64, weight, bias bool) {
	if b.Env().FakeTensors || !b.Env().Torch.LayerNormPartialSums() || rows <= 64*1024 || !(weight || bias) {
		return
	}
	n := x.Numel() / rows
	const block, rowsPerBlock = 32, 32
	blocksX := divUp(n, block)
	if blocksX >= int64(b.Env().SMs)/2 {
		return
	}
	parts := min(max(32768/blocksX, 1), divUp(rows, rowsPerBlock))
	var ts []*Tensor
	if weight {
		ts = append(ts, b.NewShape(x.DType, parts, n))
	}
	if bias {
		ts = append(ts, b.NewShape(x.DType, parts, n))
	}
	for i := len(ts) - 1; i >= 0; i-- {
		b.Drop(ts[i])
	}
}

// BatchNormArgs are the arguments of batch_norm.
type BatchNormArgs struct {
	Batch    bool    // batch statistics in any mode: there are no running ones
	Running  bool    // running statistics in any mode
	Momentum float64 `arg:"momentum"`
	Eps      float64 `arg:"eps"`

	Cumulative bool // momentum None: running statistics are means over all batches
}

func (a *BatchNormArgs) training(c *Call) bool { return a.Batch || !a.Running && c.Env().Training }

// BatchNorm chooses between cuDNN and PyTorch's own kernels
// (_batch_norm_impl_index in aten/src/ATen/native/Normalization.cpp). Inputs
// are input, weight, bias, running_mean, running_var.
var BatchNorm = define(Op{
	Name: "batch_norm", Takes: (*Call).normTypes, Args: &BatchNormArgs{}, Composite: true,
	Run: func(c *Call) {
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
		in, row := c.In, NativeBatchNorm
		if c.usesCudnnBatchNorm(a, x, w, bias) {
			row = CudnnBatchNorm
			in = append([]*Tensor{c.Local(c.inSuggestedFormat(x))}, c.In[1:]...)
		}
		outs := c.Do(row, a, in...)
		c.Return(outs[0])
		c.Drop(outs[1:]...)
	},
	NotModelled: "cuDNN's reserve space of batch normalization in channels-last layout",
})

// usesCudnnBatchNorm: cuDNN takes batches of float32 and, with float32
// weights, of float16, up to a limit of samples.
func (c *Call) usesCudnnBatchNorm(a *BatchNormArgs, x, w, bias *Tensor) bool {
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
func channelsLastKernels(x *Tensor) bool { return x.IsChannelsLastContiguous() || onePixel(x) }

// channelsLastStatistics reports the same of the forward kernels, which look at
// the plain order first, that images of one channel have too, and take no
// volumes (batch_norm_choose_impl).
func channelsLastStatistics(x *Tensor) bool {
	if x.IsContiguous() {
		return onePixel(x)
	}
	return x.Rank() == 4 && x.IsChannelsLastContiguous()
}

// onePixel reports whether the channels of x lie side by side in plain order.
func onePixel(x *Tensor) bool { return x.IsContiguous() && x.Stride.At(1) == 1 }

// welford is the size in bytes of an accumulator of mean and variance: mean,
// sum of squares, count as integer and as float.
const welford = 16

// inSuggestedFormat returns x, or a differentiable copy of it, in the memory
// format that its strides suggest.
func (c *Call) inSuggestedFormat(x *Tensor) *Tensor {
	if x.IsChannelsLast() && !x.IsContiguous() {
		if x.IsChannelsLastContiguous() {
			return c.Keep(x)
		}
		return c.Do1(Clone, &CloneArgs{ChannelsLast: true}, x)
	}
	return c.Do1(Contiguous, nil, x)
}

// statistics allocates the scratch with which channels-last kernels reduce
// very tall inputs in two steps: values a channel and block, and semaphores
// (flexible_launch_configs in Normalization.cuh). It dies at once.
func (c *Call) statistics(x *Tensor, values int64) {
	const maxThreads, tile, perThread, maxBlocks = 512, 32, 16, 128
	ch := x.Dim(1)
	rows := x.Numel() / max(ch, 1)
	width := min(lastPow2(ch), tile)
	height := min(lastPow2(divUp(rows, perThread)), maxThreads/width)
	if width*height != maxThreads {
		width = min(lastPow2(ch), maxThreads/height)
	}
	blocks := min(divUp(rows, height*perThread), maxBlocks)
	if blocks < 8 || c.Env().FakeTensors {
		return
	}
	staging := c.NewShape(x.DType.Accumulate(), values*ch*blocks)
	semaphores := c.NewShape(tensor.Int32, divUp(ch, width))
	c.Drop(semaphores, staging)
}

// The kernels of batch_norm.
var (
	NativeBatchNorm = define(Op{
		Name: "native_batch_norm", Args: &BatchNormArgs{}, Eval: evalBatchNorm, Run: func(c *Call) {
			x := c.In[0]
			acc := x.DType.Accumulate()
			c.Return(c.NewLike(x), c.NewShape(acc, x.Dim(1)), c.NewShape(acc, x.Dim(1)))
			last := channelsLastStatistics(x)
			mark := c.Mark()
			switch {
			case !c.Args.(*BatchNormArgs).training(c):
			case last:
				c.statistics(x, 4)
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
					if !c.Has(i) && !c.Env().FakeTensors {
						c.Local(c.NewShape(acc))
					}
				}
			}
		},
		Save: []Save{In(0), In(3), In(4), In(1), Out(1), Out(2)}, NoGrad: []int{1, 2}, Node: "NativeBatchNormBackward0",
		Grad: gradBatchNorm, Source: "aten/src/ATen/native/cuda/Normalization.cu",
	})
	CudnnBatchNorm = define(Op{
		Name: "cudnn_batch_norm", Args: &BatchNormArgs{}, Eval: evalBatchNorm, Run: func(c *Call) {
			x, n := c.In[0], int64(0)
			if c.Args.(*BatchNormArgs).training(c) {
				n = x.Dim(1)
			}
			acc := x.DType.Accumulate()
			c.Return(c.NewLike(x), c.NewShape(acc, n), c.NewShape(acc, n))
		},
		Save: []Save{In(0), In(3), In(4), In(1), Out(1), Out(2)}, NoGrad: []int{1, 2}, Node: "CudnnBatchNormBackward0",
		Grad: func(b *Back) { // cuDNN always computes all three
			if !b.Args.(*BatchNormArgs).training(&b.Call) {
				gradBatchNorm(b)
				return
			}
			x, w := b.SavedIn(0), b.SavedIn(1)
			b.inFormat(b.Grads[0], x.IsChannelsLastContiguous() && !x.IsContiguous())
			grads := []*Tensor{b.NewLike(x), b.NewShape(w.DType, x.Dim(1)), b.NewShape(w.DType, x.Dim(1))}
			for i, g := range grads {
				b.Set(i, g)
			}
		},
		Source: "aten/src/ATen/native/cudnn/BatchNorm.cpp",
	})
)

// flatPixels copies t for the row's duration unless its spatial dimensions can
// be seen as one.
func (c *Call) flatPixels(t *Tensor) {
	n := int64(1)
	for i := 2; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	if _, ok := t.View(tensor.D(t.Dim(0), t.Dim(1), n)); !ok {
		c.rearranged(t, tensor.Contiguous(t.Size))
	}
}

// gradBatchNorm is batch_norm_backward_cuda: one fused kernel, or sums over
// each channel and then the input's gradient.
func gradBatchNorm(b *Back) {
	x, g, w := b.SavedIn(0), b.Grads[0], b.SavedIn(1)
	ch := x.Dim(1)
	training := b.Args.(*BatchNormArgs).training(&b.Call)
	sums := training || b.Need(1) || b.Need(2)
	if sums && b.Need(0) && !channelsLastKernels(x) {
		if m := b.SavedIn(3); m != nil && w != nil && w.DType == x.DType && m.DType != x.DType {
			b.Fail("expected running_mean to have type %s but got %s, PyTorch says", x.DType, m.DType)
		}
		b.flatPixels(x)
		b.flatPixels(g)
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
		b.statistics(x, 2)
	}
	if b.Need(0) {
		b.Set(0, b.New(tensor.InFormat(x.Size, training && x.IsChannelsLast()), x.DType))
	}
}

// GroupNormArgs are the arguments of group_norm.
type GroupNormArgs struct {
	Groups int64   `arg:"num_groups"`
	Eps    float64 `arg:"eps"`
}

// GroupNorm normalizes over groups of channels.
var GroupNorm = define(Op{
	Name: "group_norm", Takes: (*Call).floatsOfOneType, Args: &GroupNormArgs{}, Cast: CastFP32, Composite: true,
	Sig: "F.group_norm(input, num_groups: int, weight: tensor? = None, bias: tensor? = None, eps: float = 1e-05)",
	Run: func(c *Call) {
		in := append([]*Tensor{c.Local(c.Do1(Contiguous, nil, c.In[0]))}, c.In[1:]...)
		outs := c.Do(NativeGroupNorm, c.Args, in...)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2])
	},
})

// NativeGroupNorm is the kernel of group_norm, which keeps mean and rstd.
var NativeGroupNorm = define(Op{
	Name: "native_group_norm", Args: &GroupNormArgs{}, Eval: evalGroupNorm, Run: func(c *Call) {
		if c.In[0].Rank() < 2 {
			c.Fail("group_norm needs at least two dimensions, not shape %v", c.In[0].Size)
		}
		if c.Opt(1) == nil && c.Opt(2) != nil {
			c.Fail("a bias without a weight is not modelled")
		}
		x, g := c.In[0], c.Args.(*GroupNormArgs).Groups
		n, ch := x.Dim(0), x.Dim(1)
		if g <= 0 || ch%g != 0 {
			c.Fail("%d channels do not divide into %d groups", ch, g)
		}
		for i := 1; i <= 2; i++ {
			if w := c.Opt(i); w != nil && w.Size != tensor.D(ch) {
				c.Fail("weight and bias must have shape [%d], not %v", ch, w.Size)
			}
		}
		y := c.New(tensor.Contiguous(x.Size), x.DType)
		mean, rstd := c.NewShape(x.DType, n, g), c.NewShape(x.DType, n, g)
		c.Return(y, mean, rstd)
		if hxw := x.Numel() / max(n*ch, 1); hxw > 1 && (c.Opt(1) != nil || c.Opt(2) != nil) {
			acc := x.DType.Accumulate()
			a, b := c.NewShape(acc, n, ch), c.NewShape(acc, n, ch)
			c.Drop(b, a)
		}
	},
	Save: []Save{In(0), In(1), Out(1), Out(2)}, NoGrad: []int{1, 2}, Node: "NativeGroupNormBackward0",
	Grad: func(b *Back) { // GroupNormBackwardKernelImplInternal
		x, w := b.SavedIn(0), b.SavedIn(1)
		n, ch, g := x.Dim(0), x.Dim(1), b.Args.(*GroupNormArgs).Groups
		acc := x.DType.Accumulate()
		b.contiguous(b.Grads[0])
		if b.Need(0) {
			b.Set(0, b.New(tensor.Contiguous(x.Size), x.DType))
		}
		for i := 1; i <= 2; i++ {
			if b.Need(i) {
				b.Set(i, b.NewShape(w.DType, ch))
			}
		}
		ds, db := b.Local(b.NewShape(acc, n, ch)), b.Local(b.NewShape(acc, n, ch))
		_, _ = ds, db
		if b.Need(0) {
			c2, c3 := b.NewShape(acc, n, g), b.NewShape(acc, n, g)
			var c1 *Tensor
			if w != nil && x.Numel() > n*ch {
				c1 = b.NewShape(acc, n, ch)
			}
			b.Drop(c3, c2, c1)
		}
	},
	Source: "aten/src/ATen/native/cuda/group_norm_kernel.cu",
})

// normTypes wants floats, and weights of the type of the input, or of float32 for the 16-bit
// types.
func (c *Call) normTypes() {
	x := c.In[0]
	defer c.floats()
	for _, t := range c.In[1:] {
		if t != nil && t.DType != x.DType && !(x.DType.IsHalf() && t.DType == tensor.Float32) {
			c.Fail("takes weights and statistics of %v, or of float32 for 16-bit types, not %v, PyTorch says", x.DType, t.DType)
		}
	}
}
