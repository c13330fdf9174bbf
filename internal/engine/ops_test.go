package engine

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// opRecording is one entry of testdata/ops: what a single operator allocated
// and freed in its forward and backward pass on real PyTorch.
type opRecording struct {
	Forward, Backward []string
	Error             string
}

func readOps(t *testing.T, arch string) map[string]opRecording {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "ops", arch+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Ops map[string]opRecording }
	if err := json.NewDecoder(z).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.Ops
}

// probe builds the operators of the recordings, in the recordings' shapes.
type probe struct {
	p  *Player
	dt tensor.DType
}

const (
	pB, pT, pD, pH, pV = 4, 128, 256, 8, 1000
)

func (b *probe) t(size ...int64) *op.Tensor { return b.p.Leaf(trace.Inputs, b.dt, true, size...) }
func (b *probe) x() *op.Tensor              { return b.t(pB, pT, pD) }
func (b *probe) img() *op.Tensor            { return b.t(pB, 64, 32, 32) }
func (b *probe) index(size ...int64) *op.Tensor {
	return b.p.Leaf(trace.Inputs, tensor.Int64, false, size...)
}
func (b *probe) do(name string, args any, in ...*op.Tensor) *op.Tensor {
	outs := b.p.Do(op.Row0(name), args, in...)
	b.p.Drop(outs[1:]...)
	return outs[0]
}

// probes maps an operator's name in the recordings to a call of it. make
// allocates the inputs; the returned function is what is recorded.
var probes = map[string]func(b *probe) func() *op.Tensor{}

func simple(name string, row string, args any) {
	probes[name] = func(b *probe) func() *op.Tensor {
		x := b.x()
		return func() *op.Tensor { return b.do(row, args, x) }
	}
}

func binary(name, row string, other func(b *probe) *op.Tensor) {
	probes[name] = func(b *probe) func() *op.Tensor {
		x, y := b.x(), other(b)
		return func() *op.Tensor { return b.do(row, &op.BinaryArgs{}, x, y) }
	}
}

func linear(name string, bias bool, size ...int64) {
	probes[name] = func(b *probe) func() *op.Tensor {
		w := b.t(4*pD, pD)
		var bi *op.Tensor
		if bias {
			bi = b.t(4 * pD)
		}
		x := b.t(size...)
		return func() *op.Tensor { return b.do("linear", nil, x, w, bi) }
	}
}

func conv(name string, bias bool) {
	probes[name] = func(b *probe) func() *op.Tensor {
		w := b.t(64, 64, 3, 3)
		var bi *op.Tensor
		if bias {
			bi = b.t(64)
		}
		x := b.img()
		two := func(n int64) []int64 { return []int64{n, n} }
		a := &op.ConvArgs{Stride: two(1), Padding: two(1), Dilation: two(1), Groups: 1}
		return func() *op.Tensor { return b.do("convolution", a, x, w, bi) }
	}
}

func image(name, row string, args any) {
	probes[name] = func(b *probe) func() *op.Tensor {
		x := b.img()
		return func() *op.Tensor { return b.do(row, args, x) }
	}
}

func sdpa(name string, t, d int64, a op.SDPAArgs) {
	probes[name] = func(b *probe) func() *op.Tensor {
		q, k, v := b.t(pB, pH, t, d), b.t(pB, pH, t, d), b.t(pB, pH, t, d)
		return func() *op.Tensor { return b.do("scaled_dot_product_attention", &a, q, k, v) }
	}
}

func init() {
	linear("linear_bias", true, pB, pT, pD)
	linear("linear_nobias", false, pB, pT, pD)
	linear("linear2d_bias", true, pB*pT, pD)
	probes["matmul_2d"] = func(b *probe) func() *op.Tensor {
		x, y := b.t(pD, pD), b.t(pD, pD)
		return func() *op.Tensor { return b.do("matmul", nil, x, y) }
	}
	probes["bmm"] = func(b *probe) func() *op.Tensor {
		x, y := b.t(pB, pH, pT, 32), b.t(pB, pH, pT, 32)
		return func() *op.Tensor {
			yt := b.do("transpose", &op.TransposeArgs{Dim0: -1, Dim1: -2}, y)
			defer b.p.Drop(yt)
			return b.do("matmul", nil, x, yt)
		}
	}
	probes["layernorm"] = func(b *probe) func() *op.Tensor {
		w, bi, x := b.t(pD), b.t(pD), b.x()
		return func() *op.Tensor { return b.do("layer_norm", &op.LayerNormArgs{Shape: []int64{pD}}, x, w, bi) }
	}
	probes["groupnorm"] = func(b *probe) func() *op.Tensor {
		w, bi, x := b.t(64), b.t(64), b.img()
		return func() *op.Tensor { return b.do("group_norm", &op.GroupNormArgs{Groups: 8}, x, w, bi) }
	}
	probes["batchnorm2d"] = func(b *probe) func() *op.Tensor {
		w, bi, x := b.t(64), b.t(64), b.img()
		mean, v := b.t(64), b.t(64)
		obj(mean).requires, obj(v).requires = false, false
		return func() *op.Tensor {
			return b.do("batch_norm", &op.BatchNormArgs{Eps: 1e-5}, x, w, bi, mean, v)
		}
	}
	conv("conv2d_bias", true)
	conv("conv2d_nobias", false)
	for _, a := range []string{"relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "softplus", "mish", "hardswish", "exp", "rsqrt"} {
		simple(a, a, nil)
	}
	simple("gelu_tanh", "gelu", nil)
	simple("softmax", "softmax", &op.SoftmaxArgs{Dim: -1})
	simple("log_softmax", "log_softmax", &op.SoftmaxArgs{Dim: -1})
	simple("mean", "mean", &op.ReduceArgs{})
	simple("sum_dim", "sum", &op.ReduceArgs{Dim: []int64{-1}})
	simple("add_scalar", "add", &op.BinaryArgs{Other: op.Number{Set: true, Value: 1}})
	simple("pow2", "pow", &op.PowArgs{Exponent: op.Number{Set: true, Value: 2}})
	simple("float", "float", nil)
	simple("clone", "clone", &op.CloneArgs{})
	simple("dropout", "dropout", &op.DropoutArgs{P: 0.1})
	probes["square"] = func(b *probe) func() *op.Tensor {
		x := b.x()
		return func() *op.Tensor { return b.do("mul", &op.BinaryArgs{}, x, x) }
	}
	probes["contig_t"] = func(b *probe) func() *op.Tensor {
		x := b.x()
		return func() *op.Tensor {
			y := b.do("transpose", &op.TransposeArgs{Dim0: 1, Dim1: 2}, x)
			defer b.p.Drop(y)
			return b.do("contiguous", nil, y)
		}
	}
	probes["chunk_cat"] = func(b *probe) func() *op.Tensor {
		x := b.x()
		return func() *op.Tensor {
			c := b.p.Do(op.Row0("chunk"), &op.SplitArgs{Chunks: 2, Dim: -1}, x)
			defer b.p.Drop(c...)
			return b.do("cat", &op.DimArgs{Dim: -1}, c[1], c[0])
		}
	}
	probes["masked_fill"] = func(b *probe) func() *op.Tensor {
		x := b.x()
		return func() *op.Tensor {
			m := b.do("gt", &op.BinaryArgs{Other: op.Number{Set: true}}, x)
			defer b.p.Drop(m)
			return b.do("masked_fill", nil, x, m)
		}
	}
	same := func(b *probe) *op.Tensor { return b.x() }
	binary("add", "add", same)
	binary("mul", "mul", same)
	binary("div", "div", same)
	binary("mul_bcast", "mul", func(b *probe) *op.Tensor { return b.t(pD) })
	two := []int64{2, 2}
	pool := &op.PoolArgs{Kernel: two, Stride: two, Padding: []int64{0, 0}, Dilation: []int64{1, 1}}
	image("maxpool2d", "max_pool", pool)
	image("avgpool2d", "avg_pool", pool)
	image("adaptiveavg1", "adaptive_avg_pool", &op.AdaptiveArgs{Size: []int64{1, 1}})
	image("adaptiveavg7", "adaptive_avg_pool", &op.AdaptiveArgs{Size: []int64{7, 7}})
	image("pad", "constant_pad_nd", &op.PadArgs{Pad: []int64{1, 1, 1, 1}})
	probes["embedding"] = func(b *probe) func() *op.Tensor {
		w, i := b.t(pV, pD), b.index(pB, pT)
		return func() *op.Tensor { return b.do("embedding", &op.EmbeddingArgs{}, i, w) }
	}
	probes["cross_entropy"] = func(b *probe) func() *op.Tensor {
		x, y := b.t(pB*pT, pV), b.index(pB*pT)
		return func() *op.Tensor { return b.do("cross_entropy", &op.LossArgs{Reduction: "mean"}, x, y) }
	}
	for _, l := range []string{"mse", "smooth_l1"} {
		probes[l] = func(b *probe) func() *op.Tensor {
			x, y := b.x(), b.x()
			obj(y).requires = false
			return func() *op.Tensor { return b.do(l+"_loss", &op.LossArgs{Reduction: "mean"}, x, y) }
		}
	}
	for _, causal := range []bool{false, true} {
		for _, p := range []float64{0, 0.1} {
			name := "sdpa_hd64"
			if causal {
				name += "_causal"
			}
			if p > 0 {
				name += "_drop"
			}
			sdpa(name, pT, 64, op.SDPAArgs{DropoutP: p, IsCausal: causal})
		}
	}
	sdpa("sdpa_hd40", pT, 40, op.SDPAArgs{})
	sdpa("sdpa_hd128_t1000", 1000, 128, op.SDPAArgs{IsCausal: true})
	for _, m := range []string{"mask", "boolmask"} {
		probes["sdpa_"+m] = func(b *probe) func() *op.Tensor {
			q, k, v, mask := b.t(pB, pH, pT, 64), b.t(pB, pH, pT, 64), b.t(pB, pH, pT, 64), b.t(pT, pT)
			obj(mask).requires = false
			if m == "boolmask" {
				mask = b.p.Leaf(trace.Inputs, tensor.Bool, false, pT, pT)
			}
			return func() *op.Tensor { return b.do("scaled_dot_product_attention", &op.SDPAArgs{}, q, k, v, mask) }
		}
	}
}

var opArchs = []struct {
	name               string
	arch, sms, threads int
}{
	{"sm70", 70, 80, 2048}, {"sm75", 75, 40, 1024}, {"sm80", 80, 108, 2048}, {"sm86", 86, 82, 1536}, {"sm90", 90, 132, 2048},
}

// render lists events as the recordings do: "+bytes" and "-bytes".
func render(tr *trace.Trace, from int) []string {
	size := map[int32]tensor.Bytes{}
	var out []string
	for i, e := range tr.Events {
		switch e.Kind {
		case trace.Alloc:
			size[e.ID] = e.Bytes
			if i >= from {
				out = append(out, fmt.Sprintf("+%d", e.Bytes))
			}
		case trace.Free:
			if i >= from {
				out = append(out, fmt.Sprintf("-%d", size[e.ID]))
			}
		}
	}
	return out
}

// TestOps holds every operator row against what real PyTorch allocated, on
// five architectures.
func TestOps(t *testing.T) {
	types := []struct {
		suffix string
		dt     tensor.DType
	}{{"_f32", tensor.Float32}, {"_bf16", tensor.BFloat16}, {"_f16", tensor.Float16}}
	for _, a := range opArchs {
		recorded := readOps(t, a.name)
		equal, total := 0, 0
		covered := map[string]bool{}
		for _, ty := range types {
			names := make([]string, 0, len(probes))
			for n := range probes {
				names = append(names, n)
			}
			sort.Strings(names)
			for _, n := range names {
				rec, ok := recorded[n+ty.suffix]
				if !ok {
					t.Fatalf("no recording of %s", n+ty.suffix)
				}
				covered[n+ty.suffix] = true
				total++
				if err := probeOp(a.arch, a.sms, a.threads, n, ty.dt, rec); err != nil {
					t.Errorf("%s %s%s: %v", a.name, n, ty.suffix, err)
					continue
				}
				equal++
			}
		}
		var out []string
		for n := range recorded {
			if !covered[n] && strings.HasSuffix(n, "_f32") {
				out = append(out, strings.TrimSuffix(n, "_f32"))
			}
		}
		sort.Strings(out)
		t.Logf("%s: %d of %d operators equal; out of scope: autocast, %s", a.name, equal, total, strings.Join(out, ", "))
	}
}

func probeOp(arch, sms, threads int, name string, dt tensor.DType, rec opRecording) (err error) {
	defer func() {
		if r := recover(); r != nil {
			pe, ok := r.(*ProgramError)
			if !ok {
				panic(r)
			}
			err = pe
		}
	}()
	p := New(op.Env{Arch: arch, SMs: sms, ThreadsPerSM: threads, Torch: torchver.Default, GradMode: true, Training: true}, nil)
	b := &probe{p, dt}
	// The recordings settle the cuBLAS workspaces first.
	for i := range p.blas {
		p.thread = uint8(i)
		p.BlasHandle()
	}
	p.thread = 0
	f := probes[name](b)
	from := len(p.tr.Events)
	o := f()
	fwd := render(p.tr, from)
	if got, want := strings.Join(fwd, " "), strings.Join(rec.Forward, " "); got != want {
		return fmt.Errorf("forward\n got %s\nwant %s", got, want)
	}
	g := p.New(o.LikeDense(), o.DType)
	from = len(p.tr.Events)
	p.Backward(o, p.Keep(g), false)
	bwd := render(p.tr, from)
	if got, want := strings.Join(bwd, " "), strings.Join(rec.Backward, " "); got != want {
		return fmt.Errorf("backward\n got %s\nwant %s", got, want)
	}
	return nil
}
