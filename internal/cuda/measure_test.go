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
	"strings"
	"testing"
	"time"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// measured is what TestMeasure finds out about a GPU, as testdata/measured has it.
type measured struct {
	By      string `json:"by"`      // what measured
	Date    string `json:"date"`    // when
	Sources string `json:"sources"` // hash of the kernels' sources

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
	Speed       []speed            `json:"speed"`

	Functions map[string]compiled `json:"functions"`
}

// taken is by how much free memory shrinks for an allocation.
type taken struct {
	Asked int64 `json:"asked"`
	Took  int64 `json:"took"`
}

// cores are those of one multiprocessor for float32, by compute capability.
var cores = map[string]int{"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128, "12.0": 128}

// TestMeasure measures a GPU and writes what it found to the file that
// MEMPLAN_MEASURE names; then it reports products that are slower than wanted. On
// the emulator it is run to see that it works.
func TestMeasure(t *testing.T) {
	file, kernels, calls, side, repeat := os.Getenv("MEMPLAN_MEASURE"), kernel.All(), 20, int64(4096), 10
	emulator := os.Getenv(libraryVariable) != ""
	if emulator {
		t.Setenv("MEMPLAN_EMULATOR_CAPABILITY", "8")
		t.Setenv("MEMPLAN_EMULATOR_MEMORY", "1073741824")
		file, kernels, calls, side, repeat = filepath.Join(t.TempDir(), "measured.json"), kernels[:3], 1, 128, 1
	} else if file == "" {
		needs.Lacks(t, "a GPU and, in MEMPLAN_MEASURE, the name of the file to write (tools/gpu.sh)")
	}
	m := measured{By: "tools/gpu.sh of memplan, " + runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly)}
	m.start(t)
	d := open(t)
	if err := d.do(d.timeLaunch(&m)); err != nil {
		t.Fatal(err)
	}
	m.granularity(t, d)
	m.errors(t, d, kernels, calls)
	if err := d.do(m.functions(d)); err != nil {
		t.Fatal(err)
	}
	m.speeds(t, d, side, repeat)
	data, err := json.MarshalIndent(m, "", "\t")
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Speed {
		if !emulator && m.PeakGFLOPS > 0 && s.OfPeak < s.least {
			t.Errorf("%s of %s, %s, by %s: %.0f GFLOPS are %.2f of the peak of float32; %.2f is wanted", s.Kernel, s.DType, s.What, s.Function, s.GFLOPS, s.OfPeak, s.least)
		}
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
	major, minor := attribute(cu.ComputeCapabilityMajor), attribute(cu.ComputeCapabilityMinor)
	m.Capability = fmt.Sprintf("%d.%d", major, minor)
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
	texts, err := ptx(10*major + minor)
	must(err)
	m.Sources = strings.TrimPrefix(strings.Split(texts[0], "\n")[1], "// sources ")
	begun := time.Now()
	var loaded []cu.Module
	for _, text := range texts {
		module, err := moduleOf(text)
		must(err)
		loaded = append(loaded, module)
	}
	m.ModuleSeconds = time.Since(begun).Seconds()
	after, _, err = cu.MemInfo()
	must(err)
	m.ModuleBytes = before - after
	for _, module := range loaded {
		must(module.Unload())
	}
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
		launches, err := d.is.plan(fill(allocsim.Address(a), 1024))
		if err != nil {
			return err
		}
		if err := d.run(launches); err != nil {
			return err
		}
		if err := cu.Synchronize(); err != nil {
			return err
		}
		begun := time.Now()
		for range n {
			if err := d.run(launches); err != nil {
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
