package cuda

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// floating are the types in which networks compute.
var floating = []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}

// lying is a matrix of a batch whose rows, or whose columns, lie together.
func lying(d tensor.DType, byRow bool, batches, rows, cols int64) kerneltest.Array {
	if byRow {
		return array(d, wave, batches, rows, cols)
	}
	a := array(d, wave, batches, cols, rows)
	a.Size, a.Stride = tensor.D(batches, rows, cols), tensor.D(rows*cols, 1, rows)
	return a
}

// rounded is by how much more results of a kernel may be off in half precision than
// those of sums in float32 alone. Attention rounds its weights once before tensor
// cores multiply them with the values: with a Factor of 100, one and a half roundings
// (2^-8 of bfloat16, 2^-11 of float16). Its gradient is of weights, of differences of
// gradients, and of a Σ g*y whose y was rounded: six.
func rounded(k *kernel.Kernel, d tensor.DType) float64 {
	switch {
	case (k == kernel.AttentionGrad || k == kernel.AttentionMaskGrad) && d == tensor.BFloat16:
		return 1 << 11
	case (k == kernel.AttentionGrad || k == kernel.AttentionMaskGrad) && d == tensor.Float16:
		return 1 << 8
	case k == kernel.Attention && d == tensor.BFloat16:
		return 1 << 9
	case k == kernel.Attention && d == tensor.Float16:
		return 1 << 6
	}
	return 1
}

// products are calls of gemm with operands that are read by groups, in all ways in
// which they can lie, and of sizes that tiles do not divide; those of parts; convolutions; and
// attention of heads of all sizes.
func products(t *testing.T) []*kerneltest.Case {
	var out []*kerneltest.Case
	for _, d := range floating {
		for _, lies := range [][2]bool{{true, false}, {true, true}, {false, false}, {false, true}} {
			for _, size := range [][4]int64{{1, 136, 72, 40}, {2, 64, 136, 168}} {
				b, m, n, k := size[0], size[1], size[2], size[3]
				out = append(out, &kerneltest.Case{Kernel: kernel.Gemm, F: []float64{0.5, 2}, Factor: 100, T: []kerneltest.Array{
					array(d, zero, b, m, n), lying(d, lies[0], b, m, k), lying(d, lies[1], b, k, n), array(d, wave, b, m, n)}})
			}
		}
		// Parts of the rows, of the columns and of k.
		for divided := range 3 {
			for _, lies := range [][2]bool{{true, false}, {true, true}, {false, false}, {false, true}} {
				m, n, k, of := int64(136), int64(72), int64(40), [3]int64{1, 1, 1}
				ends := []float64{5, 5, 70, 120}
				switch divided {
				case 1:
					m, n = n, m
				case 2:
					m, k = k, m
				}
				of[2-divided] = 4
				out = append(out, &kerneltest.Case{Kernel: kernel.GroupedGemm, I: []int64{int64(divided)}, Factor: 100, T: []kerneltest.Array{
					array(d, zero, of[0], m, n), lying(d, lies[0], of[1], m, k), lying(d, lies[1], of[2], k, n),
					array(tensor.Int32, func(i int) float64 { return ends[i] }, 4)}})
			}
		}
		// A convolution of stride 2 over height and dilation 2 over width.
		ints := []int64{1, 2, 1, 0, 1, 2, 1, 1, 2, 1}
		image, result, weight, bias := []int64{2, 20, 1, 9, 11}, []int64{2, 70, 1, 5, 11}, []int64{70, 20, 1, 3, 3}, []int64{70}
		conv := func(k *kernel.Kernel, ts ...kerneltest.Array) {
			out = append(out, &kerneltest.Case{Kernel: k, I: slices.Clone(ints), Factor: 100, T: ts})
		}
		conv(kernel.Conv, array(d, zero, result...), array(d, wave, image...), array(d, wave, weight...), array(d, wave, bias...))
		conv(kernel.ConvInputGrad, array(d, zero, image...), array(d, wave, result...), array(d, wave, weight...), kerneltest.Array{})
		conv(kernel.ConvWeightGrad, array(d, zero, weight...), array(d, wave, result...), array(d, wave, image...))
		// One with kernels of one pixel, which is a product of matrices.
		ints = []int64{1, 1, 1, 0, 0, 0, 1, 1, 1, 1}
		image, result, weight = []int64{2, 24, 1, 8, 17}, []int64{2, 40, 1, 8, 17}, []int64{40, 24, 1, 1, 1}
		conv(kernel.Conv, array(d, zero, result...), array(d, wave, image...), array(d, wave, weight...), array(d, wave, 40))
		conv(kernel.ConvInputGrad, array(d, zero, image...), array(d, wave, result...), array(d, wave, weight...), array(d, wave, 24))
		// Heads of all sizes.
		for _, size := range [][2]int64{{64, 40}, {100, 128}, {200, 130}, {300, 20}} {
			b, h, l, s := int64(1), int64(2), int64(70), int64(75)
			attention := func(k *kernel.Kernel, ts ...kerneltest.Array) *kerneltest.Case {
				c := &kerneltest.Case{Kernel: k, I: []int64{size[0] % 3 % 2, 5}, F: []float64{0.2, 0.1}, Factor: 100 * rounded(k, d), T: ts}
				out = append(out, c)
				return c
			}
			q, k, v := array(d, wave, b, h, l, size[0]), array(d, wave, b, h, s, size[0]), array(d, wave, b, h, s, size[1])
			y, lse := array(d, zero, b, h, l, size[1]), array(tensor.Float32, zero, b, h, l)
			got, err := attention(kernel.Attention, y, lse, q, k, v, kerneltest.Array{}).Run(cpu.New(0))
			if err != nil {
				t.Fatal(err)
			}
			attention(kernel.AttentionGrad, array(d, zero, b, h, l, size[0]), array(d, zero, b, h, s, size[0]), array(d, zero, b, h, s, size[1]),
				array(d, wave, b, h, l, size[1]), got[0], got[1], q, k, v, kerneltest.Array{})
		}
	}
	return out
}

// only makes a tile the one that products are computed by, until the function that it
// returns is called.
func only(of tile) (restore func()) {
	gemms, stageds := gemmTiles, stagedTiles
	gemmTiles, stagedTiles = []tile{of, anyTile}, []tile{of, anyTile}
	return func() { gemmTiles, stagedTiles = gemms, stageds }
}

// eachTile runs f with each of the staged tiles and the largest of float32 as the only
// one, and calls of gemm that it computes, of a few blocks of the largest.
func eachTile(f func(cases []*kerneltest.Case)) {
	single, half := tileCases(tensor.Float32), append(tileCases(tensor.BFloat16), tileCases(tensor.Float16)[0]) // which differ in how numbers are read
	for _, of := range append(slices.Clone(stagedTiles), gemmTiles[0]) {
		restore := only(of)
		if of.staged {
			f(half)
		} else if of.grouped {
			f(single)
		}
		restore()
	}
}

func tileCases(d tensor.DType) (cases []*kerneltest.Case) {
	for _, lies := range [][2]bool{{true, false}, {true, true}, {false, false}, {false, true}} {
		bias := array(d, wave, 1, 1, 264)
		bias.Size, bias.Stride = tensor.D(2, 152, 264), tensor.D(0, 0, 1)
		cases = append(cases, &kerneltest.Case{Kernel: kernel.Gemm, F: []float64{0.5, 2}, Factor: 100, T: []kerneltest.Array{
			array(d, zero, 2, 152, 264), lying(d, lies[0], 2, 152, 232), lying(d, lies[1], 2, 232, 264), bias}})
	}
	// More than a band of tiles; results of float32, and such as do not lie in fours; a k of any length.
	cases = append(cases,
		&kerneltest.Case{Kernel: kernel.Gemm, F: []float64{1, 0}, Factor: 100, T: []kerneltest.Array{
			array(tensor.Float32, zero, 1, 2200, 136), lying(d, true, 1, 2200, 8), lying(d, true, 1, 8, 136), {}}},
		&kerneltest.Case{Kernel: kernel.Gemm, F: []float64{1, 1}, Factor: 100, T: []kerneltest.Array{
			array(d, zero, 1, 72, 131), lying(d, true, 1, 72, 40), lying(d, false, 1, 40, 131), lying(d, false, 1, 72, 131)}},
		&kerneltest.Case{Kernel: kernel.Gemm, F: []float64{1, 1}, Factor: 100, T: []kerneltest.Array{
			array(d, zero, 1, 72, 136), lying(d, false, 1, 72, 77), lying(d, true, 1, 77, 136), array(d, wave, 1, 72, 136)}})
	return cases
}

// TestGrouped says which matrices are read by groups.
func TestGrouped(t *testing.T) {
	at := func(d tensor.DType, address uint64, size, stride []int64) *kernel.Tensor {
		return &kernel.Tensor{At: address, DType: d, Size: tensor.D(size...), Stride: tensor.D(stride...)}
	}
	for _, c := range []struct {
		t    *kernel.Tensor
		want bool
	}{
		{at(tensor.Float32, 512, []int64{2, 3, 8}, []int64{24, 8, 1}), true},
		{at(tensor.Float32, 516, []int64{2, 3, 8}, []int64{24, 8, 1}), false},    // begins amid 16 bytes
		{at(tensor.Float32, 512, []int64{2, 3, 8}, []int64{26, 8, 1}), false},    // the second of the batch does
		{at(tensor.Float32, 512, []int64{1, 3, 8}, []int64{26, 8, 1}), true},     // there is none
		{at(tensor.Float32, 512, []int64{2, 3, 7}, []int64{24, 8, 1}), false},    // the last group has three
		{at(tensor.Float32, 512, []int64{2, 4, 7}, []int64{28, 1, 4}), true},     // the other way round
		{at(tensor.Float32, 512, []int64{2, 4, 7}, []int64{30, 1, 6}), false},    // with gaps
		{at(tensor.Float32, 512, []int64{2, 4, 8}, []int64{0, 0, 1}), true},      // repeated
		{at(tensor.Float32, 512, []int64{2, 4, 8}, []int64{64, 16, 2}), false},   // one by one
		{at(tensor.BFloat16, 512, []int64{2, 3, 4}, []int64{12, 4, 1}), false},   // 8 bytes
		{at(tensor.BFloat16, 512, []int64{2, 3, 16}, []int64{48, 16, 1}), true},  // two groups
		{at(tensor.BFloat16, 512, []int64{2, 3, 16}, []int64{60, 20, 1}), false}, // rows of 40 bytes
	} {
		if got := grouped(c.t, 1, 2); got != c.want {
			t.Errorf("%v at %d, sizes %v, strides %v: %v", c.t.DType, c.t.At, c.t.Size, c.t.Stride, got)
		}
	}
}

// TestTiles says how products are divided on an A100, of 108 multiprocessors.
func TestTiles(t *testing.T) {
	is, half := gpu{sms: 108, capability: 80}, unit{"_bf16", "_bf16", true}
	for _, c := range []struct {
		p       product
		u       unit
		grouped bool
		want    string
		parts   int64
	}{
		{product{1, 4096, 4096, 4096}, unit{}, true, "gemm_256", 1},
		{product{1, 4096, 4096, 4096}, half, true, "gemm_staged_256", 1},
		{product{1, 8192, 1024, 768}, half, true, "gemm_staged_128", 1}, // the largest leave more of the last wave idle
		{product{1, 256, 256, 256}, half, true, "gemm_staged_64", 1},
		{product{1, 4096, 4096, 4097}, unit{}, false, "gemm_any", 1},
		{product{96, 512, 512, 64}, unit{}, true, "gemm_128", 1},
		{product{1, 64, 64, 128}, unit{}, true, "gemm_64", 1},     // another launch costs more
		{product{1, 64, 64, 65536}, unit{}, true, "gemm_64", 108}, // a gradient of a weight
		{product{1, 768, 768, 16384}, unit{}, true, "gemm_64", 1}, // parts find no room
	} {
		best, n, length, _ := is.tile(c.p, c.u, c.grouped)
		if best.function != c.want || n != c.parts {
			t.Errorf("%v: %s in %d parts of %d", c.p, best.function, n, length)
		}
		if length%step != 0 || n*length < c.p.depth || (n-1)*length >= c.p.depth {
			t.Errorf("%v: %d parts of %d", c.p, n, length)
		}
	}
}

// TestPointwise says which convolutions are products of matrices.
func TestPointwise(t *testing.T) {
	needs.Time(t, needs.Alone)
	is := gpu{sms: 108, capability: 80}
	at := func(size ...int64) kernel.Tensor {
		x := array(tensor.Float32, zero, size...)
		return kernel.Tensor{At: 512, DType: x.DType, Size: x.Size, Stride: x.Stride}
	}
	for _, c := range []struct {
		padding, stride, side, kernel int64
		want                          string
	}{
		{0, 1, 56, 1, "gemm_128"},
		{0, 1, 7, 1, "conv_tile"},  // small images are better put together
		{0, 1, 56, 3, "conv_tile"}, // it sees its neighbours
		{0, 2, 56, 1, "conv_tile"}, // pixels are left out
		{1, 1, 56, 1, "conv_tile"}, // the border is computed
	} {
		out := (c.side+2*c.padding-c.kernel)/c.stride + 1
		ls, err := is.plan(&kernel.Call{Kernel: kernel.Conv, I: []int64{1, c.stride, c.stride, 0, c.padding, c.padding, 1, 1, 1, 1}, T: []kernel.Tensor{
			at(32, 256, 1, out, out), at(32, 128, 1, c.side, c.side), at(256, 128, 1, c.kernel, c.kernel), at(256)}})
		if err != nil || ls[0].function != c.want {
			t.Errorf("%+v: %v, %v", c, ls[0].function, err)
		}
	}
}

// TestFragments holds the way in which tensor cores are told that squares lie
// against that in which they were loaded: the emulator does not see it.
func TestFragments(t *testing.T) {
	wmma := regexp.MustCompile(`wmma\.load\.([ab])\.sync(?:\.aligned)?\.(row|col)\S*\s+\{([^}]*)\}` +
		`|wmma\.mma\.sync(?:\.aligned)?\.(row|col)\.(row|col)\S*\s+\{[^}]*\},\s*\{([^}]*)\},\s*\{([^}]*)\}`)
	loaded, multiplied := map[string]string{}, 0 // by register
	for file, text := range modules(t) {
		for _, function := range strings.Split(text, ".entry ")[1:] {
			clear(loaded)
			for _, m := range wmma.FindAllStringSubmatch(function, -1) {
				for _, register := range strings.FieldsFunc(m[3], notOfName) {
					loaded[register] = m[1] + " " + m[2]
				}
				for _, of := range []struct{ registers, want string }{{m[6], "a " + m[4]}, {m[7], "b " + m[5]}} {
					for _, register := range strings.FieldsFunc(of.registers, notOfName) {
						multiplied++
						if loaded[register] != of.want {
							t.Errorf("%s, %s: %s is multiplied as %s, loaded as %q", file, function[:strings.Index(function, "(")], register, of.want, loaded[register])
						}
					}
				}
			}
		}
	}
	if multiplied == 0 {
		t.Error("no tensor cores are used")
	}
}

func notOfName(r rune) bool { return strings.ContainsRune(", \t\n", r) }
