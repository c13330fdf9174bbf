package optim

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

//go:embed python/eightbit.py
var eightBitPython string

// eightBitArgs are the arguments of bitsandbytes' optimizers.
type eightBitArgs struct {
	Common
	LR          float64   `arg:"lr"`
	Betas       []float64 `arg:"betas"`
	Eps         float64   `arg:"eps"`
	WeightDecay float64   `arg:"weight_decay"`
	AMSGrad     bool      `arg:"amsgrad"`
	OptimBits   int64     `arg:"optim_bits"`
	MinSize     int64     `arg:"min_8bit_size"`
	Percentile  int64     `arg:"percentile_clipping"`
	BlockWise   bool      `arg:"block_wise"`
	Paged       bool      `arg:"is_paged"`
	Embeddings  bool      `arg:"embeddings_32bit"`

	Alpha    float64 `arg:"alpha"`
	TAlpha   *int64  `arg:"t_alpha"`
	TBeta3   *int64  `arg:"t_beta3"`
	Momentum float64 `arg:"momentum"`
	Centered bool    `arg:"centered"`
}

// Figures of bitsandbytes/optim/optimizer.py.
const (
	quantBlock = 256     // numbers that share a scale; 2048 before bitsandbytes 0.44 (its PR 1365)
	quantMap   = 256     // entries of a quantization map
	pagedSize  = 100_000 // numbers from which on the states of a paged optimizer lie in managed memory
)

// The names of states, and of their scales.
var (
	stateNames = []string{"state1", "state2"}
	scaleNames = []string{"absmax1", "absmax2"}
)

// The optimizers of bitsandbytes step parameter by parameter, in kernels that
// take no memory. With 8 bits a state is one byte for each number and one scale
// for each block; those of small parameters stay in float32. The maps of
// quantization are shared. The states of paged optimizers lie in CUDA's managed
// memory, which is not the caching allocator's.
var (
	Adam8bit       = eightBit("Adam8bit", 8, 2, false, 0)
	AdamW8bit      = eightBit("AdamW8bit", 8, 2, false, 0.01)
	PagedAdam8bit  = eightBit("PagedAdam8bit", 8, 2, true, 0)
	PagedAdamW8bit = eightBit("PagedAdamW8bit", 8, 2, true, 0.01)
	PagedAdam      = eightBit("PagedAdam", 32, 2, true, 0)
	PagedAdamW     = eightBit("PagedAdamW", 32, 2, true, 0.01)
	Lion8bit       = eightBit("Lion8bit", 8, 1, false, 0)
	PagedLion8bit  = eightBit("PagedLion8bit", 8, 1, true, 0)
	PagedLion      = eightBit("PagedLion", 32, 1, true, 0)
	Lion32bit      = eightBit("Lion32bit", 32, 1, false, 0)
	RMSprop8bit    = eightBitOf("RMSprop8bit", 8, kindRMSprop, false, ofRMSprop)
	RMSprop32bit   = eightBitOf("RMSprop32bit", 32, kindRMSprop, false, ofRMSprop)

	AdEMAMix          = eightBitOf("AdEMAMix", 32, kindMixed, false, ofAdEMAMix)
	AdEMAMix8bit      = eightBitOf("AdEMAMix8bit", 8, kindMixed, false, ofAdEMAMix)
	PagedAdEMAMix     = eightBitOf("PagedAdEMAMix", 32, kindMixed, true, ofAdEMAMix)
	PagedAdEMAMix8bit = eightBitOf("PagedAdEMAMix8bit", 8, kindMixed, true, ofAdEMAMix)
)

// bnbKind is what optimizers of bitsandbytes have in common.
type bnbKind struct {
	states int
	double bool // the first state is two moments (ademamix.py: _get_state_double_buffer)

	// step updates the weights w by the gradients g, and the states.
	step func(a *eightBitArgs, t float64, w, g []float64, states [][]float64)
}

var (
	kindAdam    = bnbKind{states: 2, step: (*eightBitArgs).adam}
	kindLion    = bnbKind{states: 1, step: (*eightBitArgs).lion}
	kindRMSprop = bnbKind{states: 1, step: (*eightBitArgs).rmsprop}
	kindMixed   = bnbKind{states: 2, double: true, step: (*eightBitArgs).ademamix}
)

// bnbArgs are the first arguments of a constructor.
type bnbArgs struct {
	sig     string
	bounds  []bound
	ofGroup []string
}

var (
	ofRMSprop = bnbArgs{
		sig:    "lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-08, weight_decay: float = 0, momentum: float = 0, centered: bool = False",
		bounds: []bound{nonNegative("lr"), nonNegative("eps"), nonNegative("weight_decay")}, ofGroup: []string{"lr", "eps", "weight_decay"},
	}
	ofAdEMAMix = bnbArgs{
		sig:    "lr: float = 0.001, betas: floats = (0.9, 0.999, 0.9999), alpha: float = 5.0, t_alpha: int? = None, t_beta3: int? = None, eps: float = 1e-08, weight_decay: float = 0.01",
		bounds: []bound{nonNegative("lr"), nonNegative("eps"), nonNegative("weight_decay")}, ofGroup: []string{"lr", "betas", "eps", "weight_decay", "alpha", "t_alpha", "t_beta3"},
	}
)

// smaller are the optimizers with states of 8 bits, and those whose states are paged
// too, of the ones that they step as.
var smaller = map[*Row][2]*Row{
	Adam: {Adam8bit, PagedAdam8bit}, AdamW: {AdamW8bit, PagedAdamW8bit}, Lion: {Lion8bit, PagedLion8bit},
	PagedAdam: {PagedAdam8bit}, PagedAdamW: {PagedAdamW8bit}, PagedLion: {PagedLion8bit},
}

// In8Bits is the optimizer that steps as r with states of 8 bits, paged or not; nil if
// there is none.
func In8Bits(r *Row, paged bool) *Row {
	if paged {
		return smaller[r][1]
	}
	return smaller[r][0]
}

// eightBit is a row of Adam or, with one state, of Lion.
func eightBit(name string, bits int64, states int, paged bool, decay float64) *Row {
	args := bnbArgs{
		sig:    fmt.Sprintf("lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = %v, amsgrad: bool = False, optim_bits: int = 32", decay),
		bounds: adamBounds, ofGroup: []string{"lr", "betas", "weight_decay", "eps"},
	}
	kind := kindAdam
	if states == 1 {
		kind = kindLion
		args = bnbArgs{
			sig:    fmt.Sprintf("lr: float = 0.0001, betas: floats = (0.9, 0.99), weight_decay: float = %v", decay),
			bounds: []bound{nonNegative("lr"), betas, nonNegative("weight_decay")}, ofGroup: []string{"lr", "betas", "weight_decay"},
		}
	}
	return eightBitOf(name, bits, kind, paged, args)
}

func eightBitOf(name string, bits int64, kind bnbKind, paged bool, of bnbArgs) *Row {
	sig := of.sig + ", min_8bit_size: int = 4096, percentile_clipping: int = 100, block_wise: bool = True"
	if !paged {
		sig += ", is_paged: bool = False"
	}
	if bits == 8 {
		sig += ", embeddings_32bit: bool = False"
	}
	truth := map[bool]string{true: "True", false: "False"}
	return define(Row{
		Name: name, Args: &eightBitArgs{}, LoopByDefault: true, GPUOnly: true, Package: "bitsandbytes.optim",
		Sig: "bitsandbytes.optim." + name + "(" + sig + ")", Bounds: of.bounds, GroupArgs: of.ofGroup,
		Python: strings.NewReplacer("NAME", name, "BITS", fmt.Sprint(bits), "STATES", fmt.Sprint(kind.states), "PAGED", truth[paged], "DOUBLE", truth[kind.double],
			"RATE", map[int]string{1: "1e-4", 2: "1e-3"}[kind.states], "BETA2", map[int]string{1: "0.99", 2: "0.999"}[kind.states]).Replace(eightBitPython),
		Refuse: func(args any) (string, error) {
			switch a := args.(*eightBitArgs); {
			case a.AMSGrad:
				return "amsgrad", fmt.Errorf("%s has no amsgrad; bitsandbytes takes the argument and does nothing, or refuses it", name)
			case a.Percentile != 100:
				return "percentile_clipping", errors.New("percentile_clipping is not modelled; newer bitsandbytes has none")
			case !a.BlockWise:
				return "block_wise", errors.New("block_wise: false is not modelled; newer bitsandbytes has none")
			case a.OptimBits != 0 && a.OptimBits != 32:
				return "optim_bits", fmt.Errorf("optim_bits says nothing here: %s keeps %d bits", name, bits)
			case a.Centered:
				return "centered", errors.New("bitsandbytes refuses centered RMSprop")
			case kind.double && len(a.Betas) != 3:
				return "betas", fmt.Errorf("betas of %s are three numbers", name)
			}
			return "", nil
		},
		Begin: func(c *Call, groups []Group) { c.findHome(groups) },
		ForLoop: func(c *Call, ps []*Param) {
			a := c.Args.(*eightBitArgs)
			for _, p := range ps {
				c.inTurn(p, func() { c.quantized(p, a.bits(p, bits), kind, paged || a.Paged, a.MinSize) })
			}
		},
		Managed:    func(args any) bool { return paged || args.(*eightBitArgs).Paged },
		Embeddings: func(args any) bool { return args.(*eightBitArgs).Embeddings },
		Note: func(args any) string {
			if bits != 8 {
				return ""
			}
			return fmt.Sprintf("%s of bitsandbytes: blocks of %d, as from version 0.44 on", name, quantBlock)
		},
		Update: launched[eightBitArgs](func(m op.Machine, a *eightBitArgs, p *Param) error {
			return m.OnHost(func(memory op.Arrays) { a.update(memory, p, kind, a.bits(p, bits)) })
		}),
	})
}

// bits are how many the states of a parameter have, unless it is small: those of
// embeddings may be excepted, as transformers' Trainer does with GlobalOptimManager.
func (a *eightBitArgs) bits(p *Param, bits int64) int64 {
	if a.Embeddings && p.Table {
		return 32
	}
	return bits
}

// quantMaps are the maps that an optimizer has on the GPU.
type quantMaps struct{ signed, unsigned *op.Tensor }

// findHome finds the parameter that remembers what an optimizer keeps for all.
func (c *Call) findHome(groups []Group) {
	for _, g := range groups {
		for _, p := range g.Params {
			if c.home == nil {
				c.home = p
			}
		}
	}
}

// quantized makes the states of a parameter (init_state). With two moments in the
// first state the scales come before the states.
func (c *Call) quantized(p *Param, bits int64, kind bnbKind, paged bool, least int64) {
	n := p.T.Numel()
	d := tensor.Float32
	if bits == 8 && n >= least {
		d = tensor.Uint8
	}
	if d == tensor.Uint8 {
		c.quantMaps(kind.states)
	}
	states := func() {
		for i := range kind.states {
			l := p.T.LikeDense()
			if i == 0 && kind.double {
				l = tensor.Contiguous(tensor.D(append([]int64{2}, p.T.Size.Slice()...)...))
			}
			if paged && n >= pagedSize {
				bytes, err := tensor.MulBytes(l.Numel(), d.Size())
				if err != nil {
					c.Fail("optimizer state of %d numbers: %v", n, err)
				}
				c.Paged(bytes)
				continue
			}
			p.keep(stateNames[i], c.Persist(c.New(l, d)))
		}
	}
	scales := func() {
		for i := range kind.states {
			size := tensor.D(tensor.DivUp(n, quantBlock))
			if i == 0 && kind.double {
				size = tensor.D(2, tensor.DivUp(n, quantBlock))
			}
			p.keep(scaleNames[i], c.Persist(c.New(tensor.Contiguous(size), tensor.Float32)))
		}
	}
	if d == tensor.Uint8 && kind.double {
		scales()
	}
	states()
	if d == tensor.Uint8 && !kind.double {
		scales()
	}
}

// quantMaps moves the maps to the GPU, once for an optimizer.
func (c *Call) quantMaps(states int) {
	maps, _ := c.home.Own.(*quantMaps)
	if maps == nil {
		maps = &quantMaps{}
		c.home.Own = maps
		table := func() *op.Tensor {
			t := c.Persist(c.New(tensor.Contiguous(tensor.D(quantMap)), tensor.Float32))
			c.home.State = append(c.home.State, t)
			return t
		}
		maps.signed = table()
		if states == 2 {
			maps.unsigned = table()
		}
	}
}

// update is a step as bitsandbytes' kernels compute it (csrc/kernels.cu:
// kOptimizer32bit1State, kOptimizer32bit2State, kOptimizerStatic8bit1StateBlockwise and
// 2StateBlockwise). States of 8 bits are dequantized, updated and quantized block by block.
// Those in managed memory are kept in the machine's.
func (a *eightBitArgs) update(memory op.Arrays, p *Param, kind bnbKind, bits int64) {
	quantized := bits == 8 && p.T.Numel() >= a.MinSize
	w, g := memory.Get(p.T), memory.Get(p.Grad)
	maps := [][]float64{array.DynamicMap(true), array.DynamicMap(false)}
	states := make([][]float64, kind.states)
	for i := range states {
		n := len(w)
		if i == 0 && kind.double {
			n *= 2
		}
		switch {
		case p.Steps == 1:
			states[i] = make([]float64, n)
		case quantized:
			indices, scales := p.stored(memory, stateNames[i]), p.stored(memory, scaleNames[i])
			for k, blocks := 0, len(scales)*len(w)/n; k < n/len(w); k++ { // each moment has blocks of its own
				states[i] = append(states[i], array.Dequantized8(indices[k*len(w):(k+1)*len(w)], maps[i], scales[k*blocks:(k+1)*blocks], quantBlock)...)
			}
		default:
			states[i] = p.stored(memory, stateNames[i])
		}
	}
	kind.step(a, float64(p.Steps), w, g, states)
	for i, s := range states {
		if quantized {
			var indices, scales []float64
			for k := 0; k < len(s); k += len(w) {
				x, y := array.Quantized8(s[k:k+len(w)], maps[i], quantBlock)
				indices, scales = append(indices, x...), append(scales, y...)
			}
			p.store(memory, scaleNames[i], scales)
			s = indices
		}
		p.store(memory, stateNames[i], s)
	}
	memory.Put(p.T, w)
}

func (a *eightBitArgs) adam(t float64, w, g []float64, states [][]float64) {
	m, v, beta1, beta2 := states[0], states[1], a.Betas[0], a.Betas[1]
	root := math.Sqrt(1 - math.Pow(beta2, t))
	size := a.LR * root / (1 - math.Pow(beta1, t))
	for i := range w {
		m[i] = beta1*m[i] + (1-beta1)*g[i]
		v[i] = beta2*v[i] + (1-beta2)*g[i]*g[i]
		w[i] -= size * m[i] / (math.Sqrt(v[i]) + root*a.Eps)
		w[i] *= 1 - a.LR*a.WeightDecay
	}
}

func (a *eightBitArgs) lion(_ float64, w, g []float64, states [][]float64) {
	m, beta1, beta2 := states[0], a.Betas[0], a.Betas[1]
	for i := range w {
		w[i] *= 1 - a.LR*a.WeightDecay
		switch d := beta1*m[i] + (1-beta1)*g[i]; {
		case d > 0:
			w[i] -= a.LR
		case d < 0:
			w[i] += a.LR
		}
		m[i] = beta2*m[i] + (1-beta2)*g[i]
	}
}

func (a *eightBitArgs) rmsprop(_ float64, w, g []float64, states [][]float64) {
	v := states[0]
	for i := range w {
		d := g[i] + a.WeightDecay*w[i]
		v[i] = a.Alpha*v[i] + (1-a.Alpha)*d*d
		w[i] -= a.LR * d / (math.Sqrt(v[i]) + a.Eps)
	}
}

// ademamix has a fast and a slow moment of the gradient (Pagliardini et al. 2024); t_alpha
// and t_beta3 are steps over which the slow one comes in.
func (a *eightBitArgs) ademamix(t float64, w, g []float64, states [][]float64) {
	n := len(w)
	fast, slow, v := states[0][:n], states[0][n:], states[1]
	beta1, beta2, beta3, alpha := a.Betas[0], a.Betas[1], a.Betas[2], a.Alpha
	if a.TAlpha != nil {
		alpha = math.Min(t/float64(*a.TAlpha), 1) * alpha
	}
	if a.TBeta3 != nil {
		s, l1, l3 := math.Min(t/float64(*a.TBeta3), 1), math.Log(beta1), math.Log(beta3)
		beta3 = math.Min(math.Exp(l1*l3/((1-s)*l3+s*l1)), beta3)
	}
	first, second := 1-math.Pow(beta1, t), math.Sqrt(1-math.Pow(beta2, t))
	for i := range w {
		fast[i] = beta1*fast[i] + (1-beta1)*g[i]
		slow[i] = beta3*slow[i] + (1-beta3)*g[i]
		v[i] = beta2*v[i] + (1-beta2)*g[i]*g[i]
		w[i] *= 1 - a.LR*a.WeightDecay
		w[i] -= a.LR * (fast[i]/first + alpha*slow[i]) / (math.Sqrt(v[i])/second + a.Eps)
	}
}

// stored are the numbers of a state, or of its scales; store keeps them.
func (p *Param) stored(memory op.Arrays, name string) []float64 {
	if t := p.state(name); t != nil {
		return memory.Get(t)
	}
	return p.managed[name]
}

func (p *Param) store(memory op.Arrays, name string, v []float64) {
	if t := p.state(name); t != nil {
		memory.Put(t, v)
		return
	}
	if p.managed == nil {
		p.managed = map[string][]float64{}
	}
	p.managed[name] = v
}
