package cpu

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/tensor"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// of makes an operand.
func of(d tensor.DType, size []int64, v ...float64) *operand {
	return &operand{size: size, dtype: d, v: v}
}

func equal64(a, b float64) bool { return a == b || a != a && b != b }

// TestSpecialNumbers checks what kernels make of NaN, infinities and nothing, as
// PyTorch does.
func TestSpecialNumbers(t *testing.T) {
	const f = tensor.Float32
	h := host{t, New(0)}
	unary := func(k *kernel.Kernel, floats []float64, in, want []float64) {
		t.Helper()
		n := numbers{nil, map[string]float64{}}
		for i, name := range k.Floats {
			n.f[name] = floats[i]
		}
		y := of(f, []int64{int64(len(in))}, make([]float64, len(in))...)
		if strings.HasSuffix(k.Name, "_scalar") {
			y.dtype = tensor.Bool
		}
		h.run(k, map[string]*operand{"y": y, "a": of(f, y.size, in...)}, n)
		if !slices.EqualFunc(y.v, want, equal64) {
			t.Errorf("%s of %v is %v, not %v", k.Name, in, y.v, want)
		}
	}
	unary(kernel.Relu, nil, []float64{nan, -inf, inf, -2}, []float64{nan, 0, inf, 0})
	unary(kernel.Hardtanh, []float64{-1, 1}, []float64{nan, -inf, inf}, []float64{nan, -1, 1})
	unary(kernel.Sigmoid, nil, []float64{nan, -inf, inf, -1000}, []float64{nan, 0, 1, 0})
	unary(kernel.Softplus, []float64{1, 20}, []float64{nan, -inf, inf, 100}, []float64{nan, 0, inf, 100})
	unary(kernel.LogSigmoid, nil, []float64{-200, inf}, []float64{-200, 0})
	unary(kernel.Exp, nil, []float64{1000, -1000, nan}, []float64{inf, 0, nan})
	unary(kernel.Log, nil, []float64{0, -1}, []float64{-inf, nan})
	unary(kernel.Affine, []float64{0, 1}, []float64{inf}, []float64{nan})
	unary(kernel.EqScalar, []float64{1}, []float64{nan, 1}, []float64{0, 1})
	unary(kernel.NeScalar, []float64{1}, []float64{nan, 1}, []float64{1, 0})
	unary(kernel.GtScalar, []float64{0.1}, []float64{0.1, 0.2}, []float64{0, 1}) // 0.1 as a float32

	// A row of -inf, one with a NaN, one with an infinity.
	rows := of(f, []int64{4, 2}, -inf, -inf, nan, 0, inf, 0, -inf, 0)
	y := of(f, rows.size, make([]float64, 8)...)
	h.run(kernel.Softmax, map[string]*operand{"y": y, "a": rows}, numbers{})
	if !slices.EqualFunc(y.v, []float64{nan, nan, nan, nan, nan, nan, 0, 1}, equal64) {
		t.Errorf("softmax %v", y.v)
	}
	h.run(kernel.LogSoftmax, map[string]*operand{"y": y, "a": rows}, numbers{})
	if !slices.EqualFunc(y.v, []float64{nan, nan, nan, nan, nan, nan, -inf, 0}, equal64) {
		t.Errorf("log_softmax %v", y.v)
	}

	h.run(kernel.SafeSoftmax, map[string]*operand{"y": y, "a": rows}, numbers{})
	if !slices.EqualFunc(y.v, []float64{0, 0, nan, nan, nan, nan, 0, 1}, equal64) {
		t.Errorf("safe_softmax %v", y.v)
	}
	// The product with a logarithm is 0 where its factor is, but for a NaN.
	factors := of(f, []int64{4}, 0, 0, 0, 1)
	product := of(f, factors.size, 0, 0, 0, 0)
	h.run(kernel.Xlogy, map[string]*operand{"y": product, "a": factors, "b": of(f, factors.size, 0, nan, -1, 0)}, numbers{})
	if !slices.EqualFunc(product.v, []float64{0, nan, 0, -inf}, equal64) {
		t.Errorf("xlogy %v", product.v)
	}
	// Logarithms of probabilities are at least -100.
	loss := &operand{size: []int64{2}, dtype: f, v: []float64{0}, kept: []int64{0}}
	h.run(kernel.Entropy, map[string]*operand{"y": loss, "a": of(f, []int64{2}, 0, 1), "b": of(f, []int64{2}, 1, 0)}, numbers{nil, map[string]float64{"scale": 1}})
	if loss.v[0] != 200 {
		t.Errorf("bce %v", loss.v)
	}

	// Of two NaN the last one counts; a window of -inf has its first element.
	image := []int64{1, 1, 1, 2, 4}
	y, index := of(f, []int64{1, 1, 1, 1, 2}, 0, 0), of(tensor.Int64, []int64{1, 1, 1, 1, 2}, 0, 0)
	window := numbers{map[string]int64{"kernel_d": 1, "kernel_h": 2, "kernel_w": 2, "stride_d": 1, "stride_h": 2, "stride_w": 2,
		"dilation_d": 1, "dilation_h": 1, "dilation_w": 1}, nil}
	h.run(kernel.MaxPool, map[string]*operand{"y": y, "index": index, "x": of(f, image, nan, 1, -inf, -inf, nan, 5, -inf, -inf)}, window)
	if !slices.EqualFunc(y.v, []float64{nan, -inf}, equal64) || !slices.Equal(index.v, []float64{4, 2}) {
		t.Errorf("max_pool %v at %v", y.v, index.v)
	}

	// 0 times NaN and infinity, in a product of matrices.
	c := of(f, []int64{1, 1, 2}, 0, 0)
	h.run(kernel.Gemm, map[string]*operand{"c": c, "a": of(f, []int64{1, 1, 2}, 0, 1), "b": of(f, []int64{1, 2, 2}, nan, inf, 1, 1)}, numbers{nil, map[string]float64{"alpha": 1}})
	if !slices.EqualFunc(c.v, []float64{nan, nan}, equal64) {
		t.Errorf("gemm %v", c.v)
	}
	h.run(kernel.Gemm, map[string]*operand{"c": c, "a": of(f, []int64{1, 1, 0}), "b": of(f, []int64{1, 0, 2})}, numbers{nil, map[string]float64{"alpha": 1}})
	if !slices.Equal(c.v, []float64{0, 0}) {
		t.Errorf("a product over nothing is %v", c.v)
	}

	// A mean over targets that are all ignored.
	loss, total := of(f, []int64{1, 1}, 0), of(f, []int64{1}, 9)
	h.run(kernel.NLLLoss, map[string]*operand{"y": loss, "total": total, "x": of(f, []int64{2, 1, 1}, 1, 2), "target": of(tensor.Int64, []int64{2, 1}, -100, -100)},
		numbers{map[string]int64{"reduction": kernel.ReduceMean, "ignore_index": -100}, nil})
	if !equal64(loss.v[0], nan) || total.v[0] != 0 {
		t.Errorf("loss %v, total %v", loss.v, total.v)
	}

	// A maximum with a NaN.
	top := &operand{size: []int64{3}, dtype: f, v: []float64{0}, kept: []int64{0}}
	h.run(kernel.Max, map[string]*operand{"y": top, "a": of(f, []int64{3}, 1, nan, 2)}, numbers{})
	if !equal64(top.v[0], nan) {
		t.Errorf("amax %v", top.v)
	}
}

// TestOutOfRange checks that indices beyond a table are errors.
func TestOutOfRange(t *testing.T) {
	const f = tensor.Float32
	d := New(0)
	for _, c := range []struct {
		says string
		c    kerneltest.Case
	}{
		{"index 3 is out of range [0, 3)", kerneltest.Case{Kernel: kernel.Embedding, T: arrays(of(f, []int64{1, 2, 1}, 0, 0), of(f, []int64{3, 1}, 1, 2, 3), of(tensor.Int64, []int64{1, 2}, 0, 3))}},
		{"index -1 is out of range [0, 3)", kerneltest.Case{Kernel: kernel.EmbeddingGrad, I: []int64{-1}, T: arrays(of(f, []int64{3, 1}, 1, 2, 3), of(f, []int64{1, 2, 1}, 0, 0), of(tensor.Int64, []int64{1, 2}, 0, -1))}},
		{"index -4 is out of range [0, 3)", kerneltest.Case{Kernel: kernel.Index, T: arrays(of(f, []int64{1, 2, 1}, 0, 0), of(f, []int64{1, 3, 1}, 1, 2, 3), of(tensor.Int64, []int64{2}, 0, -4))}},
		{"index 3 is out of range [0, 3)", kerneltest.Case{Kernel: kernel.IndexGrad, T: arrays(of(f, []int64{1, 3, 1}, 1, 2, 3), of(f, []int64{1, 2, 1}, 0, 0), of(tensor.Int64, []int64{2}, 0, 3))}},
		{"index 3 is out of range [0, 3)", kerneltest.Case{Kernel: kernel.EmbeddingBag, I: []int64{0, -1}, T: arrays(of(f, []int64{1, 1}, 0), of(tensor.Int64, []int64{2}, 0, 0),
			of(tensor.Int64, []int64{1}, 0), of(f, []int64{3, 1}, 1, 2, 3), of(tensor.Int64, []int64{2}, 0, 3), of(tensor.Int64, []int64{1}, 0), nil)}},
		{"offsets 0 to 3 are out of range [0, 2]", kerneltest.Case{Kernel: kernel.EmbeddingBag, I: []int64{0, -1}, T: arrays(of(f, []int64{2, 1}, 0, 0), of(tensor.Int64, []int64{2}, 0, 0),
			of(tensor.Int64, []int64{2}, 0, 0), of(f, []int64{3, 1}, 1, 2, 3), of(tensor.Int64, []int64{2}, 0, 1), of(tensor.Int64, []int64{2}, 0, 3), nil)}},
		{"target 2 is out of range [0, 2)", kerneltest.Case{Kernel: kernel.NLLLoss, I: []int64{kernel.ReduceSum, -100},
			T: arrays(of(f, []int64{1, 1}, 0), of(f, []int64{1}, 0), of(f, []int64{1, 2, 1}, 1, 2), of(tensor.Int64, []int64{1, 1}, 2), nil)}},
		{"index 9 is out of range [0, 4)", kerneltest.Case{Kernel: kernel.MaxPoolGrad, I: make([]int64, 12),
			T: arrays(of(f, []int64{1, 1, 1, 2, 2}, 0, 0, 0, 0), of(f, []int64{1, 1, 1, 1, 1}, 1), of(tensor.Int64, []int64{1, 1, 1, 1, 1}, 9))}},
	} {
		_, err := c.c.Run(d)
		wants(t, err, c.says)
	}
}

// arrays are contiguous operands; nil is one that is absent.
func arrays(ops ...*operand) []kerneltest.Array {
	var out []kerneltest.Array
	for _, o := range ops {
		if o == nil {
			out = append(out, kerneltest.Array{})
			continue
		}
		out = append(out, o.array())
	}
	return out
}

// TestTypes checks conversions, and what runs on whole numbers.
func TestTypes(t *testing.T) {
	h := host{t, New(0)}
	for _, c := range []struct {
		from, to tensor.DType
		in, want []float64
	}{
		{tensor.Float32, tensor.BFloat16, []float64{1.00390625, 1.01171875, 3.4e38, nan}, []float64{1, 1.015625, inf, nan}}, // ties to even
		{tensor.Float32, tensor.Float16, []float64{65519, 65520, 1e-8, 0.1}, []float64{65504, inf, 0, 0.0999755859375}},
		{tensor.BFloat16, tensor.Float16, []float64{0.5, 1e30}, []float64{0.5, inf}},
		{tensor.Float64, tensor.Float32, []float64{0.1}, []float64{float64(float32(0.1))}},
		{tensor.Float32, tensor.Int64, []float64{-2.7, 2.7}, []float64{-2, 2}},
		{tensor.Int64, tensor.Int8, []float64{200, -1}, []float64{-56, -1}},
		{tensor.Int64, tensor.Float32, []float64{7}, []float64{7}},
		{tensor.Float32, tensor.Bool, []float64{0, 0.5, nan}, []float64{0, 1, 1}},
		{tensor.Int32, tensor.Bool, []float64{0, 256}, []float64{0, 1}},
		{tensor.Bool, tensor.Float64, []float64{1, 0}, []float64{1, 0}},
		{tensor.Uint8, tensor.Uint8, []float64{255}, []float64{255}},
	} {
		y := of(c.to, []int64{int64(len(c.in))}, make([]float64, len(c.in))...)
		h.run(kernel.Copy, map[string]*operand{"y": y, "a": of(c.from, y.size, c.in...)}, numbers{})
		if !slices.EqualFunc(y.v, c.want, equal64) {
			t.Errorf("%v from %v to %v is %v, not %v", c.in, c.from, c.to, y.v, c.want)
		}
	}
	for _, c := range []struct {
		k    *kernel.Kernel
		d    tensor.DType
		f    map[string]float64
		a, b []float64
		want []float64
	}{
		{kernel.Add, tensor.Int64, map[string]float64{"alpha": -2}, []float64{5, 1 << 53}, []float64{1, 0}, []float64{3, 1 << 53}},
		{kernel.Mul, tensor.Uint8, nil, []float64{20, 3}, []float64{20, 2}, []float64{144, 6}},
		{kernel.Mul, tensor.Bool, nil, []float64{1, 1}, []float64{0, 1}, []float64{0, 1}},
		{kernel.Affine, tensor.Int32, map[string]float64{"scale": 3, "shift": -1}, []float64{2, -2}, nil, []float64{5, -7}},
		{kernel.Fill, tensor.Int16, map[string]float64{"value": -3}, nil, nil, []float64{-3, -3}},
		{kernel.Tril, tensor.Bool, nil, []float64{1, 1}, nil, []float64{1, 0}},
	} {
		size := []int64{1, 2}
		y := of(c.d, size, 0, 0)
		ops := map[string]*operand{"y": y}
		if c.a != nil {
			ops["a"] = of(c.d, size, c.a...)
		}
		if c.b != nil {
			ops["b"] = of(c.d, size, c.b...)
		}
		h.run(c.k, ops, numbers{nil, c.f})
		if !slices.Equal(y.v, c.want) {
			t.Errorf("%s of %v and %v as %v is %v, not %v", c.k.Name, c.a, c.b, c.d, y.v, c.want)
		}
	}
	sum := &operand{size: []int64{3}, dtype: tensor.Int64, v: []float64{0}, kept: []int64{0}}
	h.run(kernel.Sum, map[string]*operand{"y": sum, "a": of(tensor.Bool, []int64{3}, 1, 0, 1)}, numbers{nil, map[string]float64{"scale": 1}})
	if sum.v[0] != 2 {
		t.Errorf("the sum of a mask is %v", sum.v)
	}
	norm := &operand{size: []int64{2}, dtype: tensor.Float32, v: []float64{0}, kept: []int64{0}}
	h.run(kernel.Norm, map[string]*operand{"y": norm, "a": of(tensor.BFloat16, []int64{2}, 3, 4)}, numbers{})
	if norm.v[0] != 5 {
		t.Errorf("the norm is %v", norm.v)
	}
	y := of(tensor.Int64, []int64{1}, 0)
	c := kerneltest.Case{Kernel: kernel.Affine, F: []float64{0.5, 0}, T: arrays(y, y)}
	_, err := c.Run(h.d)
	wants(t, err, "scale = 0.5 is not a whole number, which int64 needs")
}
