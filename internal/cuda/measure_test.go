//go:build cuda

package cuda

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/tensor"
)

// measured is what TestMeasure finds out about a GPU, as testdata/measured has it.
type measured struct {
	GPU        string `json:"gpu"`
	Capability string `json:"compute_capability"`
	SMs        int    `json:"sms"`
	Driver     int    `json:"driver"` // as cuDriverGetVersion has it
	TotalBytes int64  `json:"total_bytes"`

	// What is not free any more once a context is there, and once the kernels are
	// loaded, and how long that took.
	ContextBytes   int64   `json:"context_bytes"`
	ModuleBytes    int64   `json:"module_bytes"`
	ModuleSeconds  float64 `json:"module_seconds"`
	LaunchOverhead float64 `json:"launch_microseconds"`

	Granularity []taken            `json:"granularity"`
	Errors      map[string]float64 `json:"errors"`      // by kernel and type, in units of what is allowed
	PeakGFLOPS  float64            `json:"peak_gflops"` // of float32: two for each core and tick of the clock that the driver tells
	Gemm        []speed            `json:"gemm"`
}

// taken is by how much free memory shrinks for an allocation.
type taken struct {
	Asked int64 `json:"asked"`
	Took  int64 `json:"took"`
}

// speed is that of a product of matrices.
type speed struct {
	DType  string  `json:"dtype"`
	M      int64   `json:"m"`
	N      int64   `json:"n"`
	K      int64   `json:"k"`
	GFLOPS float64 `json:"gflops"`
}

// cores are those of one multiprocessor for float32, by compute capability.
var cores = map[string]int{"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128, "12.0": 128}

// TestMeasure measures a GPU and writes what it found to the file that
// MEMPLAN_MEASURE names. On the emulator it is run to see that it works.
func TestMeasure(t *testing.T) {
	file, kernels, calls, unit := os.Getenv("MEMPLAN_MEASURE"), kernel.All(), 20, int64(512)
	if os.Getenv(libraryVariable) != "" {
		file, kernels, calls, unit = filepath.Join(t.TempDir(), "measured.json"), kernels[:3], 1, 8
	} else if file == "" {
		t.Skip("MEMPLAN_MEASURE names no file")
	}
	var m measured
	m.start(t)
	d := open(t)
	if err := d.do(d.timeLaunch(&m)); err != nil {
		t.Fatal(err)
	}
	m.granularity(t, d)
	m.errors(t, d, kernels, calls)
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for n := unit; n <= 8*unit; n *= 2 {
			m.gemm(t, d, dtype, n, n, n)
		}
		m.gemm(t, d, dtype, unit*3/2, unit*6, unit*32) // a gradient of a weight
	}
	data, err := json.MarshalIndent(m, "", "\t")
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start measures what a context and the module take, before any other test has
// opened the GPU.
func (m *measured) start(t *testing.T) {
	if _, why := Available(); why != nil {
		absent(t, why)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gpu := cu.Device(0)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	attribute := func(a cu.DeviceAttribute) int {
		v, err := gpu.Attribute(a)
		must(err)
		return v
	}
	var err error
	m.GPU, err = gpu.Name()
	must(err)
	m.Capability = fmt.Sprintf("%d.%d", attribute(cu.ComputeCapabilityMajor), attribute(cu.ComputeCapabilityMinor))
	m.SMs, m.Driver = attribute(cu.MultiprocessorCount), cu.Version()
	clock := float64(attribute(cu.ClockRate)) * 1e3
	m.PeakGFLOPS = 2 * clock * float64(m.SMs*cores[m.Capability]) / 1e9
	// Free memory can only be asked for with a context: the second one of the
	// process shows what each takes.
	first, err := gpu.MakeContext(cu.SchedAuto)
	must(err)
	before, total, err := cu.MemInfo()
	must(err)
	m.TotalBytes = total
	second, err := gpu.MakeContext(cu.SchedAuto)
	must(err)
	after, _, err := cu.MemInfo()
	must(err)
	m.ContextBytes = before - after
	must(second.Destroy())
	must(cu.SetCurrentContext(first))
	before, _, err = cu.MemInfo()
	must(err)
	text, err := ptx()
	must(err)
	begun := time.Now()
	module, err := cu.LoadData(text)
	must(err)
	m.ModuleSeconds = time.Since(begun).Seconds()
	after, _, err = cu.MemInfo()
	must(err)
	m.ModuleBytes = before - after
	must(module.Unload())
	must(first.Destroy())
}

// timeLaunch measures how long a launch keeps the owner.
func (d *Device) timeLaunch(m *measured) func() error {
	return func() error {
		n := 1000
		a, err := cu.MemAlloc(4096)
		if err != nil {
			return err
		}
		launches, err := plan(fill(allocsim.Address(a), 1024))
		if err != nil {
			return err
		}
		if err := d.run(launches[0]); err != nil {
			return err
		}
		if err := cu.Synchronize(); err != nil {
			return err
		}
		begun := time.Now()
		for range n {
			if err := d.run(launches[0]); err != nil {
				return err
			}
		}
		if err := cu.Synchronize(); err != nil {
			return err
		}
		m.LaunchOverhead = float64(time.Since(begun).Microseconds()) / float64(n)
		return cu.MemFree(a)
	}
}

func (m *measured) granularity(t *testing.T, d *Device) {
	_, total := d.MemInfo()
	largest := min(32<<20, total/64)
	for n := tensor.Bytes(1); n <= largest; n *= 2 {
		for _, asked := range slices.Compact([]tensor.Bytes{n, n + 1}) {
			var held []allocsim.Address
			before, _ := d.MemInfo()
			const count = 16 // small ones share what the driver takes
			for range count {
				a, err := d.Malloc(asked)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, a)
			}
			after, _ := d.MemInfo()
			m.Granularity = append(m.Granularity, taken{int64(asked), int64(before-after) / count})
			for _, a := range held {
				if err := d.Free(a, asked); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// errors finds how many times the usual error each kernel has, by making what is
// allowed larger until it passes.
func (m *measured) errors(t *testing.T, d *Device, kernels []*kernel.Kernel, calls int) {
	m.Errors = map[string]float64{}
	for _, k := range kernels {
		for _, dtype := range floating {
			rng, worst := seeded(k.Name+dtype.String()), 0.0
			for range calls {
				c := kerneltest.Random(k, dtype, rng, 1<<16)
				got, err := c.Run(d)
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				allowed := c.Factor
				for f := 1.0 / 64; ; f *= 2 {
					if c.Factor = allowed * f; c.Compare(got) == nil {
						worst = max(worst, f)
						break
					}
					if f > 1<<20 {
						worst = math.MaxFloat64
						break
					}
				}
			}
			m.Errors[k.Name+"/"+dtype.String()] = worst
		}
	}
}

func (m *measured) gemm(t *testing.T, d *Device, dtype tensor.DType, rows, cols, depth int64) {
	matrix := func(a, b int64) kernel.Tensor {
		bytes := tensor.Bytes(a * b * dtype.Size())
		at, err := d.Malloc(bytes)
		if err != nil {
			t.Skip("not enough memory for these matrices: ", err)
		}
		t.Cleanup(func() { _ = d.Free(at, bytes) })
		x := kernel.Tensor{At: uint64(at), DType: dtype, Size: tensor.D(1, a, b), Stride: tensor.D(a*b, b, 1)}
		if err := d.Launch(&kernel.Call{Kernel: kernel.Fill, F: []float64{0.5}, T: []kernel.Tensor{x}}); err != nil {
			t.Fatal(err)
		}
		return x
	}
	c := &kernel.Call{Kernel: kernel.Gemm, F: []float64{1, 0}, T: []kernel.Tensor{matrix(rows, cols), matrix(rows, depth), matrix(depth, cols), {}}}
	const n = 10
	var ms float64
	run := func() error {
		launches, err := plan(c)
		if err != nil {
			return err
		}
		start, err := cu.MakeEvent(cu.DefaultEvent)
		if err != nil {
			return err
		}
		end, err := cu.MakeEvent(cu.DefaultEvent)
		if err != nil {
			return err
		}
		for i := range n + 2 { // the first ones warm up
			if i == 2 {
				if err := start.Record(cu.NoStream); err != nil {
					return err
				}
			}
			for _, l := range launches {
				if err := d.run(l); err != nil {
					return err
				}
			}
		}
		if err := end.Record(cu.NoStream); err != nil {
			return err
		}
		if err := end.Synchronize(); err != nil {
			return err
		}
		ms, err = start.Elapsed(end)
		return err
	}
	if err := d.do(run); err != nil {
		t.Fatal(err)
	}
	m.Gemm = append(m.Gemm, speed{dtype.String(), rows, cols, depth, 2 * float64(rows*cols*depth) * n / ms / 1e6})
}
