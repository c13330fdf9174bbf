//go:build cuda

package cuda

import (
	"fmt"
	"testing"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// speed is how long a kernel takes.
type speed struct {
	Kernel   string  `json:"kernel"`
	Function string  `json:"function"` // the first that is launched
	DType    string  `json:"dtype"`
	What     string  `json:"what"`
	Millisec float64 `json:"milliseconds"` // the mean of some
	GFLOPS   float64 `json:"gflops,omitempty"`
	OfPeak   float64 `json:"of_peak,omitempty"` // GFLOPS in units of PeakGFLOPS
	GBps     float64 `json:"gigabytes_per_second"`
	least    float64 // of OfPeak, that is asked for
}

// compiled is what the driver's compiler made of a function.
type compiled struct {
	Registers int `json:"registers"`
	Local     int `json:"local_bytes"` // of a thread: registers that did not suffice
	Shared    int `json:"shared_bytes"`
}

// benchmark is a call whose time is measured.
type benchmark struct {
	kernel *kernel.Kernel
	dtype  tensor.DType
	what   string
	t      []kernel.Tensor // sizes and strides; without sizes: absent
	ints   []int64
	floats []float64
	flops  float64
	least  float64 // share of the peak of float32 that is asked for
	by     *tile   // of a product: the tile that is measured; nil: the one that is picked
}

// laid is an operand of sizes, the last two of which lie the other way round if
// transposed is set.
func laid(d tensor.DType, transposed bool, size ...int64) kernel.Tensor {
	s := tensor.D(size...)
	t := kernel.Tensor{DType: d, Size: s, Stride: tensor.Contiguous(s).Stride}
	if n := len(size); transposed {
		t.Stride = t.Stride.Set(n-2, 1).Set(n-1, size[n-2])
	}
	return t
}

// wanted is the share of the peak of float32 that products of large matrices must
// reach, in half precision as well.
const wanted = 0.4

// benchmarks are kernels of sizes as in training; n is the side of a matrix.
func benchmarks(n int64) []benchmark {
	var out []benchmark
	for _, d := range floating {
		gemm := func(lies string, batch, rows, cols, depth int64, least float64) {
			out = append(out, benchmark{kernel.Gemm, d, fmt.Sprintf("%s, %d×%d×%d×%d", lies, batch, rows, cols, depth),
				[]kernel.Tensor{laid(d, false, batch, rows, cols), laid(d, lies[0] == 't', batch, rows, depth), laid(d, lies[1] == 't', batch, depth, cols), {}},
				nil, []float64{1, 0}, 2 * float64(batch*rows*cols*depth), least, nil})
		}
		gemm("nn", 1, n/8, n/8, n/8, 0)
		gemm("nn", 1, n/4, n/4, n/4, 0)
		gemm("nn", 1, n/2, n/2, n/2, wanted)
		for _, lies := range []string{"nn", "nt", "tn", "tt"} {
			gemm(lies, 1, n, n, n, wanted)
		}
		gemm("nt", 1, n, n, n-1, 0)                                                                                   // read one by one
		gemm("nt", 96, n/8, n/8, n/64, 0)                                                                             // scores of attention
		gemm("tn", 1, n/5, n*3/4, 4*n, 0)                                                                             // the gradient of a weight
		gemm("nt", 1, n, 12*n+1105, n/4, 0)                                                                           // the head of a language model
		gemm("nn", 1, 16, n, n, 0)                                                                                    // few rows
		gemm("tn", 1, n/64, n/64, 256*n, 0)                                                                           // many parts
		for _, size := range [][3]int64{{2 * n, n * 9 / 16, n * 3 / 16}, {2 * n, n * 3 / 16, n * 3 / 4}, {n, n, n}} { // two layers of GPT-2
			for _, tiles := range [][]tile{stagedTiles, gemmTiles} {
				for _, of := range tiles {
					if half := d != tensor.Float32; of.grouped && of.staged == half {
						gemm("nt", 1, size[0], size[1], size[2], 0)
						out[len(out)-1].by = &of
					}
				}
			}
		}
		ints := []int64{1, 1, 1, 0, 1, 1, 1, 1, 1, 1}
		image, weight := laid(d, false, n/128, n/64, 1, 56, 56), laid(d, false, n/64, n/64, 1, 3, 3)
		flops := 2 * float64(image.Numel()*9*n/64)
		what := fmt.Sprintf("images %v, 3×3", image.Size)
		out = append(out,
			benchmark{kernel.Conv, d, what, []kernel.Tensor{image, image, weight, {}}, ints, nil, flops, 0, nil},
			benchmark{kernel.ConvInputGrad, d, what, []kernel.Tensor{image, image, weight, {}}, ints, nil, flops, 0, nil},
			benchmark{kernel.ConvWeightGrad, d, what, []kernel.Tensor{weight, image, image}, ints, nil, flops, 0, nil})
		heads, lse := laid(d, false, max(1, n/512), 12, n/4, 64), laid(tensor.Float32, false, max(1, n/512), 12, n/4)
		flops = 4 * float64(heads.Numel()*n/4)
		what = fmt.Sprintf("heads %v", heads.Size)
		out = append(out,
			benchmark{kernel.Attention, d, what, []kernel.Tensor{heads, lse, heads, heads, heads, {}}, []int64{0, 0}, []float64{0.125, 0}, flops, 0, nil},
			benchmark{kernel.AttentionGrad, d, what, []kernel.Tensor{heads, heads, heads, heads, heads, lse, heads, heads, heads, {}}, []int64{0, 0}, []float64{0.125, 0}, 2.5 * flops, 0, nil})
		rows, row, statistics := laid(d, false, 4*n, n/4), laid(d, false, n/4), laid(tensor.Float32, false, 4*n)
		what = fmt.Sprint(rows.Size)
		out = append(out,
			benchmark{kernel.Copy, d, what, []kernel.Tensor{rows, rows}, nil, nil, 0, 0, nil},
			benchmark{kernel.Add, d, what, []kernel.Tensor{rows, rows, rows}, nil, []float64{1}, 0, 0, nil},
			benchmark{kernel.Softmax, d, what, []kernel.Tensor{rows, rows}, nil, nil, 0, 0, nil},
			benchmark{kernel.LayerNorm, d, what, []kernel.Tensor{rows, statistics, statistics, rows, row, row}, nil, []float64{1e-5}, 0, 0, nil},
			benchmark{kernel.Adam, d, what, []kernel.Tensor{rows, rows, rows, {}, rows}, []int64{2, 1, 0}, []float64{1e-3, 0.9, 0.999, 1e-8, 0.01}, 0, 0, nil})
	}
	return out
}

// speeds measures benchmarks, each with operands of its own.
func (m *measured) speeds(t *testing.T, d *Device, n int64, repeat int) {
	for _, b := range benchmarks(n) {
		if b.by != nil && b.by.staged && d.is.capability < 80 {
			continue
		}
		c := &kernel.Call{Kernel: b.kernel, T: b.t, I: b.ints, F: b.floats}
		bytes := tensor.Bytes(0)
		var free []func()
		for i := range c.T {
			x := &c.T[i]
			if x.Size.Len() == 0 { // absent
				continue
			}
			size := tensor.Bytes(x.Numel() * x.DType.Size())
			at, err := d.Malloc(size)
			if err != nil {
				t.Fatalf("%s of %s needs an operand of %v: %v", b.kernel.Name, b.what, size, err)
			}
			free = append(free, func() {
				if err := d.Free(at, size); err != nil {
					t.Error(err)
				}
			})
			x.At = uint64(at)
			bytes += size
			whole := tensor.D(x.Numel())
			fill := kernel.Tensor{At: x.At, DType: x.DType, Size: whole, Stride: tensor.D(1)}
			if err := d.Launch(&kernel.Call{Kernel: kernel.Fill, F: []float64{0.5}, T: []kernel.Tensor{fill}}); err != nil {
				t.Fatal(err)
			}
		}
		s := speed{Kernel: b.kernel.Name, DType: b.dtype.String(), What: b.what, least: b.least}
		if b.dtype == tensor.BFloat16 && d.is.capability < 80 {
			s.least = 0 // it is read one by one there, and converted
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		if err := d.do(d.timed(c, b.by, repeat, &s)); err != nil {
			t.Fatal(err)
		}
		for _, f := range free {
			f()
		}
		s.GBps = float64(bytes) / s.Millisec / 1e6
		if s.GFLOPS = b.flops / s.Millisec / 1e6; m.PeakGFLOPS > 0 {
			s.OfPeak = s.GFLOPS / m.PeakGFLOPS
		}
		m.Speed = append(m.Speed, s)
	}
}

// timed measures a call, which has been made twice before.
func (d *Device) timed(c *kernel.Call, by *tile, repeat int, s *speed) func() error {
	return func() error {
		if by != nil {
			defer only(*by)()
		}
		launches, err := d.is.plan(c)
		if err != nil {
			return err
		}
		s.Function = launches[0].function
		start, err := cu.MakeEvent(cu.DefaultEvent)
		if err != nil {
			return err
		}
		end, err := cu.MakeEvent(cu.DefaultEvent)
		if err != nil {
			return err
		}
		for i := range repeat + 2 {
			if i == 2 {
				if err := start.Record(cu.NoStream); err != nil {
					return err
				}
			}
			if err := d.run(launches); err != nil {
				return err
			}
		}
		if err := end.Record(cu.NoStream); err != nil {
			return err
		}
		if err := end.Synchronize(); err != nil {
			return err
		}
		ms, err := start.Elapsed(end)
		s.Millisec = ms / float64(repeat)
		return err
	}
}

// functions asks the driver what it compiled.
func (m *measured) functions(d *Device) func() error {
	return func() error {
		m.Functions = map[string]compiled{}
		for _, file := range d.code {
			for _, name := range file.names {
				module, err := moduleOf(file.text([]string{name}))
				if err != nil {
					return err
				}
				f, err := module.Function(name)
				if err != nil {
					return err
				}
				var c compiled
				for a, v := range map[cu.FunctionAttribute]*int{cu.NumRegs: &c.Registers, cu.LocalSizeBytes: &c.Local, cu.SharedSizeBytes: &c.Shared} {
					if *v, err = f.Attribute(a); err != nil {
						return err
					}
				}
				m.Functions[name] = c
				if err := module.Unload(); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
