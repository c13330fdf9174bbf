package cuda

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/needs"
	_ "github.com/memplan/memplan/internal/optim" // its formulas
	"github.com/memplan/memplan/internal/tensor"
)

var update = flag.Bool("update", false, "write kernels/ops.h and kernels/update.cuh")

func seeded(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

// small makes all ways of a launch be taken by small operands: those in parts if
// many blocks are said to be enough, those of large tiles if few are.
func small(t *testing.T, enough int64) {
	saved := tuning
	tuning.enough, tuning.part, tuning.partOf, tuning.depth, tuning.finish, tuning.sum, tuning.narrow = enough, 32, 8, 16, 0, 0, 3
	t.Cleanup(func() { tuning = saved })
}

// TestKernelNumbers holds ops.h against package kernel.
func TestKernelNumbers(t *testing.T) {
	var b strings.Builder
	b.WriteString("// Written by go test ./internal/cuda -update from package kernel: the kernels' numbers.\n#pragma once\n\nenum {\n")
	for _, k := range kernel.All() {
		if k.Formula == nil {
			fmt.Fprintf(&b, "\tOP_%s,\n", k.Name)
		}
	}
	b.WriteString("};\n")
	const file = "kernels/ops.h"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != b.String() {
		t.Errorf("%s is not that of package kernel (%v); run go test ./internal/cuda -update, then make ptx", file, err)
	}
}

// modules reads the compiled modules.
func modules(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("kernels/*.ptx.gz")
	if err != nil || len(files) != 2 {
		t.Fatalf("compiled modules: %v, %v", files, err)
	}
	out := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[file] = string(text)
	}
	return out
}

// TestUpdates holds update.cuh against the formulas.
func TestUpdates(t *testing.T) {
	const file = "kernels/update.cuh"
	want := updateSource()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not that of the formulas (%v); run go test ./internal/cuda -update, then make ptx", file, err)
	}
}

// TestModuleIsCurrent holds the hash in the compiled modules against the sources.
func TestModuleIsCurrent(t *testing.T) {
	entries, err := os.ReadDir("kernels") // sorted
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".cu" && ext != ".cuh" && ext != ".h" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("kernels", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(data)
	}
	for file, text := range modules(t) {
		if want := fmt.Sprintf("// sources %x\n", h.Sum(nil)); !strings.Contains(text[:200], want) {
			t.Errorf("%s is of other sources; run make ptx", file)
		}
	}
}

// TestScratch holds the sizes of the modules' memory against what plans count on.
func TestScratch(t *testing.T) {
	for file, text := range modules(t) {
		for _, want := range []string{fmt.Sprintf(" scratch[%d];", 4*tuning.scratch), fmt.Sprintf(" scratch_int[%d];", 8*tuning.scratchI)} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no%s", file, want)
			}
		}
	}
}

// signatures reads, from the compiled modules, the type of each parameter of each
// function.
func signatures(t *testing.T) map[string][]string {
	out := map[string][]string{}
	parameter := regexp.MustCompile(`\.param \.(\w+)`)
	entry := regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\)`)
	for file, text := range modules(t) {
		for _, m := range entry.FindAllStringSubmatch(text, -1) {
			if out[m[1]] != nil {
				t.Errorf("%s has a function %s, as another module", file, m[1])
			}
			for _, p := range parameter.FindAllStringSubmatch(m[2], -1) {
				out[m[1]] = append(out[m[1]], p[1])
			}
		}
	}
	return out
}

// recorder is a device that runs nothing.
type recorder struct {
	allocsim.Driver
	check func(c *kernel.Call) error
}

func (r recorder) Malloc(tensor.Bytes) (allocsim.Address, error) { return 1 << 20, nil }
func (r recorder) Free(allocsim.Address, tensor.Bytes) error     { return nil }
func (r recorder) Write(allocsim.Address, []byte) error          { return nil }
func (r recorder) Read([]byte, allocsim.Address) error           { return nil }
func (r recorder) Synchronize() error                            { return nil }
func (r recorder) Launch(c *kernel.Call) error                   { return r.check(c) }

// TestPlans holds launches against the compiled modules: each kernel has a plan,
// whose functions exist and take that many parameters; where a parameter is a
// float, the upper half of the cell is empty. And each function is launched.
func TestPlans(t *testing.T) {
	needs.Time(t, needs.Alone)
	known, used, is := signatures(t), map[string]bool{}, gpu{}
	device := recorder{check: func(c *kernel.Call) error {
		launches, err := is.plan(c)
		if err != nil {
			return err
		}
		for _, l := range launches {
			parameters, ok := known[l.function]
			if !ok {
				return fmt.Errorf("the module has no function %s", l.function)
			}
			if len(parameters) != len(l.args) {
				return fmt.Errorf("function %s takes %d parameters, not %d", l.function, len(parameters), len(l.args))
			}
			for i, p := range parameters {
				if p == "f32" && l.args[i]>>32 != 0 {
					return fmt.Errorf("function %s: parameter %d is %#x, no float", l.function, i, l.args[i])
				}
			}
			used[l.function] = true
		}
		return nil
	}}
	run := func(c *kerneltest.Case) {
		if _, err := c.Run(device); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, is = range []gpu{{sms: 1, capability: 70}, {sms: 1, capability: 80}, {sms: 256, capability: 70}, {sms: 256, capability: 80}} {
		small(t, is.sms)
		for _, k := range kernel.All() {
			rng := seeded(k.Name)
			for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
				for range 6 {
					run(kerneltest.Random(k, d, rng, 2048))
				}
			}
		}
		for _, c := range append(cases(), products(t)...) {
			run(c)
		}
	}
	is = gpu{sms: 1, capability: 80}
	eachTile(func(cases []*kerneltest.Case) {
		for _, c := range cases {
			run(c)
		}
	})
	for f := range known {
		if !used[f] {
			t.Errorf("function %s is never launched", f)
		}
	}
}

func TestUnsupported(t *testing.T) {
	at := func(d tensor.DType, size ...int64) kernel.Tensor {
		s := tensor.D(size...)
		return kernel.Tensor{At: 1 << 20, DType: d, Size: s, Stride: tensor.Contiguous(s).Stride}
	}
	for _, c := range []struct {
		call kernel.Call
		want string
	}{
		{kernel.Call{Kernel: kernel.Exp, T: []kernel.Tensor{at(tensor.Float64, 2), at(tensor.Float64, 2)}},
			"kernel exp on a GPU: float64 is not computed there"},
		{kernel.Call{Kernel: kernel.Exp, T: []kernel.Tensor{at(tensor.Int64, 2), at(tensor.Int64, 2)}},
			"kernel exp on a GPU: is not computed of int64"},
		{kernel.Call{Kernel: kernel.Softmax, T: []kernel.Tensor{at(tensor.Float64, 2), at(tensor.Float64, 2)}},
			"kernel softmax on a GPU: operand y of type float64 is not computed there"},
		{kernel.Call{Kernel: kernel.Embedding, T: []kernel.Tensor{at(tensor.Float32, 2, 3), at(tensor.Float32, 4, 3), at(tensor.Int32, 2)}},
			"kernel embedding on a GPU: operand index of type int32 is not computed there"},
		{kernel.Call{Kernel: kernel.Attention, I: []int64{0, 0}, F: []float64{1, 0}, T: []kernel.Tensor{at(tensor.Float32, 1, 1, 2, 600), {},
			at(tensor.Float32, 1, 1, 2, 600), at(tensor.Float32, 1, 1, 2, 600), at(tensor.Float32, 1, 1, 2, 600), {}}},
			"kernel attention on a GPU: heads of size 600; at most 512 are computed there"},
	} {
		if _, err := (gpu{}).plan(&c.call); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
