package cpu

import (
	"math"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/tensor"
)

// derivative says which kernel one is the derivative of. Their operands have the
// same names but for a, the operand of functions of one, which is x, and y,
// which is r; a result gx is the gradient of x. What y is comes first.
type derivative struct {
	of   *kernel.Kernel
	away float64 // least distance from what functions have kinks at
	by   string  // what the result y is the gradient by, if not a
}

// derivatives are all kernels that compute one from what the forward pass read.
var derivatives = map[*kernel.Kernel]derivative{
	kernel.LeakyReluGrad: {of: kernel.LeakyRelu, away: 0.01}, kernel.EluGrad: {of: kernel.Elu, away: 0.01},
	kernel.GeluGrad: {of: kernel.Gelu}, kernel.GeluTanhGrad: {of: kernel.GeluTanh},
	kernel.SiluGrad: {of: kernel.Silu}, kernel.SoftplusGrad: {of: kernel.Softplus},
	kernel.HardtanhGrad: {of: kernel.Hardtanh, away: 0.01}, kernel.HardswishGrad: {of: kernel.Hardswish, away: 0.01},
	kernel.HardsigmGrad: {of: kernel.Hardsigm, away: 0.01}, kernel.SinGrad: {of: kernel.Sin},
	kernel.CosGrad: {of: kernel.Cos}, kernel.AbsGrad: {of: kernel.Abs, away: 0.01},
	kernel.PowScalarGrad: {of: kernel.PowScalar}, kernel.LogSigmoidGrad: {of: kernel.LogSigmoid},
	kernel.ReluGrad: {of: kernel.Relu, away: 0.01}, kernel.TanhGrad: {of: kernel.Tanh},
	kernel.SigmoidGrad: {of: kernel.Sigmoid}, kernel.SqrtGrad: {of: kernel.Sqrt},
	kernel.RsqrtGrad:   {of: kernel.Rsqrt},
	kernel.DivGrad:     {of: kernel.Div, by: "b"},
	kernel.MSEGrad:     {of: kernel.MSE},
	kernel.L1Grad:      {of: kernel.L1, away: 0.01},
	kernel.BCEGrad:     {of: kernel.BCE},
	kernel.EntropyGrad: {of: kernel.Entropy},
	kernel.SoftmaxGrad: {of: kernel.Softmax}, kernel.LogSoftmaxGrad: {of: kernel.LogSoftmax},
	kernel.LayerNormGrad: {of: kernel.LayerNorm}, kernel.RMSNormGrad: {of: kernel.RMSNorm},
	kernel.BatchNormGrad: {of: kernel.BatchNorm}, kernel.GroupNormGrad: {of: kernel.GroupNorm},
	kernel.ConvInputGrad: {of: kernel.Conv}, kernel.ConvWeightGrad: {of: kernel.Conv},
	kernel.MaxPoolGrad: {of: kernel.MaxPool}, kernel.AvgPoolGrad: {of: kernel.AvgPool}, kernel.AdaptiveAvgPoolGrad: {of: kernel.AdaptiveAvgPool},
	kernel.ResampleGrad:  {of: kernel.Resample},
	kernel.IndexGrad:     {of: kernel.Index},
	kernel.EmbeddingGrad: {of: kernel.Embedding}, kernel.EmbeddingBagGrad: {of: kernel.EmbeddingBag}, kernel.NLLLossGrad: {of: kernel.NLLLoss},
	kernel.AttentionGrad: {of: kernel.Attention},
	kernel.Expm1Grad:     {of: kernel.Expm1}, kernel.Log1pGrad: {of: kernel.Log1p}, kernel.ReciprocalGrad: {of: kernel.Reciprocal},
	kernel.ClampGrad: {of: kernel.Hardtanh, away: 0.01}, kernel.MinimumGrad: {of: kernel.Minimum}, kernel.NormGrad: {of: kernel.Norm},
	kernel.AttentionMaskGrad: {of: kernel.Attention},
	kernel.IndexPairsGrad:    {of: kernel.IndexPairs},
	kernel.LSTMCellGrad:      {of: kernel.LSTMCell}, kernel.GRUCellGrad: {of: kernel.GRUCell},
	kernel.TanhCellGrad: {of: kernel.TanhCell}, kernel.ReluCellGrad: {of: kernel.ReluCell, away: 0.01},
}

// TestDerivatives lists the kernels that are derivatives, so that none is left
// out.
func TestDerivatives(t *testing.T) {
	for _, k := range kernel.All() {
		if _, ok := derivatives[k]; !ok && strings.HasSuffix(k.Name, "_grad") {
			t.Errorf("%s is compared with no forward pass", k.Name)
		}
	}
}

func operandNames(k *kernel.Kernel) []string {
	var out []string
	for _, n := range k.Tensors {
		out = append(out, strings.TrimSuffix(n, "?"))
	}
	return out
}

// host runs calls of float64 on contiguous operands.
type host struct {
	t *testing.T
	d *Device
}

// operand is one of float64 or of indices; kept are the strides of one that is a
// single number for all elements.
type operand struct {
	size  []int64
	dtype tensor.DType
	v     []float64
	kept  []int64
}

// array is the operand as it lies in memory.
func (o *operand) array() kerneltest.Array {
	a := kerneltest.Array{DType: o.dtype, Size: tensor.D(o.size...), Storage: make([]byte, int64(len(o.v))*o.dtype.Size())}
	a.Stride = tensor.Contiguous(a.Size).Stride
	if o.kept != nil {
		a.Stride = tensor.D(o.kept...)
	}
	for i, v := range o.v {
		o.dtype.Put(a.Storage[int64(i)*o.dtype.Size():], v)
	}
	return a
}

// numbers are those of a call by name.
type numbers struct {
	i map[string]int64
	f map[string]float64
}

// run runs a kernel and takes over what it wrote first.
func (h host) run(k *kernel.Kernel, ops map[string]*operand, n numbers) {
	h.t.Helper()
	c := &kerneltest.Case{Kernel: k}
	for _, name := range operandNames(k) {
		o := ops[name]
		if o == nil {
			c.T = append(c.T, kerneltest.Array{})
			continue
		}
		c.T = append(c.T, o.array())
	}
	for _, name := range k.Ints {
		c.I = append(c.I, n.i[name])
	}
	for _, name := range k.Floats {
		c.F = append(c.F, n.f[name])
	}
	got, err := c.Run(h.d)
	if err != nil {
		h.t.Fatal(err)
	}
	for i, name := range operandNames(k)[:k.Outputs] {
		if o := ops[name]; o != nil {
			for j := range o.v {
				o.v[j] = o.dtype.Number(got[i].Storage[int64(j)*o.dtype.Size():])
			}
		}
	}
}

// one makes an operand a single number.
func (o *operand) one() {
	o.kept, o.v = make([]int64, len(o.size)), []float64{1.5}
}

// TestFiniteDifferences compares each derivative with how the sum of g*y changes
// when an element of what the forward pass read does.
func TestFiniteDifferences(t *testing.T) {
	for k, d := range derivatives {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			h, checked := host{t, New(0)}, 0
			for seed := 0; checked < 8; seed++ {
				if seed > 200 {
					t.Fatal("no call can be compared")
				}
				if d.check(h, k, kerneltest.Random(d.of, tensor.Float64, source(t, seed), 60)) {
					checked++
				}
			}
		})
	}
}

// check compares a derivative with a call of the forward pass, unless that
// leaves out what the derivative needs.
func (d derivative) check(h host, k *kernel.Kernel, c *kerneltest.Case) bool {
	h.t.Helper()
	n := numbers{map[string]int64{"padding_idx": -1}, map[string]float64{}}
	for i, name := range d.of.Ints {
		n.i[name] = c.I[i]
	}
	for i, name := range d.of.Floats {
		n.f[name] = c.F[i]
	}
	if _, has := n.f["eps"]; has {
		n.f["eps"] = 1e-3 // so that elements that are alike do not change too fast
	}
	forward := map[string]*operand{}
	for i, name := range operandNames(d.of) {
		if a := &c.T[i]; !a.Absent() {
			o := &operand{size: a.Size.Slice(), dtype: a.DType, v: a.Values()}
			for j, v := range o.v {
				if kinked(v, d.away) {
					o.v[j] += 3 * d.away
				}
			}
			forward[name] = o
		}
	}
	y := forward[operandNames(d.of)[0]]
	if len(y.v) == 0 {
		return false
	}
	if d.of.Kind == kernel.Reduce {
		y.one()
	}
	h.run(d.of, forward, n)
	g := &operand{size: y.size, dtype: tensor.Float64, v: make([]float64, len(y.v)), kept: y.kept}
	for i := range g.v {
		g.v[i] = math.Sin(float64(3*i + 1))
	}
	back := map[string]*operand{"g": g, "c": g, "r": {size: y.size, dtype: tensor.Float64, v: append([]float64(nil), y.v...), kept: y.kept}}
	by := map[string]string{} // results and what they are the gradients by
	for i, name := range operandNames(k) {
		of := name
		switch {
		case i < k.Outputs && name != "y":
			of = name[1:]
		case i < k.Outputs && d.by != "":
			of = d.by
		case back[name] != nil, k == kernel.ConvInputGrad && name == "bias": // that one is of gx
			continue
		case i < k.Outputs || forward[name] == nil:
			of = "a"
			if forward[of] == nil {
				of = name
			}
		}
		o := forward[of]
		switch {
		case i < k.Outputs && o != nil:
			if o.dtype == tensor.Bool {
				return false
			}
			by[name] = of
			back[name] = &operand{size: o.size, dtype: o.dtype, v: make([]float64, len(o.v))}
		case i >= k.Outputs && o != nil:
			back[name] = o
		case k.Tensors[i] == name:
			return false // it is not optional
		}
	}
	loss := func() (sum float64) {
		h.run(d.of, forward, n)
		for i, v := range y.v {
			sum += g.v[i] * v
		}
		return sum
	}
	base := loss()
	h.run(k, back, n)
	for name, of := range by {
		x := forward[of].v
		for i := range min(len(x), 14) {
			const step = 1e-5
			v := x[i]
			x[i] = v + step
			up := loss()
			x[i] = v - step
			down := loss()
			x[i] = v
			want, got := (up-down)/(2*step), back[name].v[i]
			if !(math.Abs(got-want) <= 1e-6*math.Abs(want)+1e-7*(1+math.Abs(base))) {
				h.t.Fatalf("%v: %s[%d] is %v, by differences %v", c, name, i, got, want)
			}
		}
	}
	return true
}

// kinked reports whether a number is near where some function has a kink.
func kinked(v, away float64) bool {
	for _, at := range []float64{-3, -1, 0, 3} {
		if math.Abs(v-at) < away {
			return true
		}
	}
	return false
}
