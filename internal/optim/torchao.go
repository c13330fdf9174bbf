package optim

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

//go:embed python/torchao.py
var torchaoPython string

// torchaoArgs are the arguments of torchao's optimizers.
type torchaoArgs struct {
	Common
	LR          float64   `arg:"lr"`
	Betas       []float64 `arg:"betas"`
	Eps         float64   `arg:"eps"`
	WeightDecay float64   `arg:"weight_decay"`
	AMSGrad     bool      `arg:"amsgrad"`
	BlockSize   int64     `arg:"block_size"`
	Stochastic  bool      `arg:"bf16_stochastic_round"`
}

// torchaoLeast is from how many numbers on the states of a parameter are quantized; of a DTensor its
// local tensor counts (torchao/optim/adam.py: _new_buffer).
const torchaoLeast = 4096

// torchaoKind is a state of torchao: codes, a scale in float32 of each block, and, of codes
// that are integers, the map to their values.
type torchaoKind struct {
	name   string
	inByte int64 // codes in a byte
	values int64 // entries of the map; 0: codes are numbers
	block  int64 // the default of block_size
	blocks []int64
	codes  bool                                     // a step has buffers of scaled moments in float32, and of their codes in int64
	scales func(size tensor.Dims, block int64) bool // and of new scales
}

// The optimizers of torchao step parameter by parameter, in a function that torch.compile
// compiles for each size and type (single_param_adam). Its buffers are those that Inductor of
// PyTorch 2.6 allocates, for both moments; scales are computed where they are stored if blocks
// and rows begin together.
var (
	TorchaoAdamW8bit = torchao(torchaoKind{name: "AdamW8bit", inByte: 1, values: 256, block: 256, blocks: []int64{256},
		scales: func(size tensor.Dims, block int64) bool { return !inBlocks(size, block, false) }})
	TorchaoAdamW4bit = torchao(torchaoKind{name: "AdamW4bit", inByte: 2, values: 16, block: 128, blocks: []int64{128, 256}, codes: true,
		scales: func(size tensor.Dims, block int64) bool { return !inBlocks(size, block, true) }})
	TorchaoAdamWFp8 = torchao(torchaoKind{name: "AdamWFp8", inByte: 1, block: 256, blocks: []int64{256},
		scales: func(tensor.Dims, int64) bool { return true }})
)

// inBlocks reports whether each trailing part of a parameter that is larger than a block is
// made of blocks, and, with small, each block of those that are smaller.
func inBlocks(size tensor.Dims, block int64, small bool) bool {
	rows := int64(1)
	for i := size.Len() - 1; i > 0; i-- {
		rows *= size.At(i)
		if rows > block && rows%block != 0 || small && rows < block && block%rows != 0 {
			return false
		}
	}
	return true
}

// vector makes a temporary of n numbers.
func (c *Call) vector(d tensor.DType, n int64) *op.Tensor {
	return c.New(tensor.Contiguous(tensor.D(n)), d)
}

func torchao(k torchaoKind) *Row {
	return define(Row{
		Name: "torchao." + k.name, Args: &torchaoArgs{}, LoopByDefault: true, GPUOnly: true, Package: "torchao.optim", ByShard: true,
		Sig: fmt.Sprintf("torchao.optim.%s(lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.01, amsgrad: bool = False, "+
			"block_size: int = %d, bf16_stochastic_round: bool = False)", k.name, k.block),
		Bounds: adamBounds, GroupArgs: []string{"lr", "betas", "eps", "weight_decay"},
		Python: strings.NewReplacer("NAME", k.name, "BLOCK", fmt.Sprint(k.block), "IN_BYTE", fmt.Sprint(k.inByte), "VALUES", fmt.Sprint(k.values)).Replace(torchaoPython),
		Refuse: func(args any) (string, error) {
			switch a := args.(*torchaoArgs); {
			case a.AMSGrad:
				return "amsgrad", fmt.Errorf("%s fails with amsgrad: its quantized states have no maximum", k.name)
			case !slices.Contains(k.blocks, a.BlockSize):
				return "block_size", fmt.Errorf("block_size %d of %s is not modelled; modelled is %s", a.BlockSize, k.name, strings.Trim(strings.ReplaceAll(fmt.Sprint(k.blocks), " ", ", "), "[]"))
			}
			return "", nil
		},
		ForLoop: func(c *Call, ps []*Param) {
			a := c.Args.(*torchaoArgs)
			for _, p := range ps {
				n := p.T.Numel()
				quantized := n >= torchaoLeast && n%a.BlockSize == 0
				c.inTurn(p, func() { k.states(c, p, quantized, a.BlockSize) })
				k.step(c, p, quantized, a)
			}
		},
		Note: func(any) string {
			return fmt.Sprintf("%s of torchao: its steps allocate what torch.compile of PyTorch 2.6 makes of them; what it allocates to compile and to tune kernels in the first step is left out", k.name)
		},
	})
}

// states makes both moments of a parameter.
func (k *torchaoKind) states(c *Call, p *Param, quantized bool, block int64) {
	n := p.T.Numel()
	keep := func(t *op.Tensor) { p.State = append(p.State, c.Persist(t)) }
	for range 2 {
		if !quantized {
			keep(c.temp(p))
			continue
		}
		keep(c.vector(tensor.Uint8, n/k.inByte))
		keep(c.vector(tensor.Float32, n/block))
		if k.values > 0 {
			keep(c.vector(tensor.Float32, k.values))
		}
	}
}

// step is what the compiled function allocates.
func (k *torchaoKind) step(c *Call, p *Param, quantized bool, a *torchaoArgs) {
	var scales, moments, codes [2]*op.Tensor
	n := p.T.Numel()
	if quantized && k.scales(p.T.Size, a.BlockSize) {
		for i := range scales {
			scales[i] = c.vector(tensor.Float32, n/a.BlockSize)
		}
	}
	var seed *op.Tensor // of stochastic rounding
	if a.Stochastic && p.T.DType == tensor.BFloat16 {
		seed = c.vector(tensor.Int64, 1)
	}
	if quantized && k.codes {
		for i := range codes {
			moments[i], codes[i] = c.vector(tensor.Float32, n), c.vector(tensor.Int64, n)
		}
	}
	c.Drop(seed)
	for i := range codes {
		if scales[i] == nil {
			c.Drop(moments[i], codes[i])
			continue
		}
		c.Drop(codes[i], scales[i], moments[i])
	}
}
