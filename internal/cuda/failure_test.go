//go:build cuda

package cuda

import (
	"errors"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// emulated opens the emulator with settings, or skips on a GPU.
func emulated(t *testing.T, settings ...string) *Device {
	t.Helper()
	for i := 0; i < len(settings); i += 2 {
		t.Setenv("MEMPLAN_EMULATOR_"+settings[i], settings[i+1])
	}
	t.Cleanup(func() { _ = load() }) // forgets them
	if _, why := Available(); why != nil {
		absent(t, why)
	}
	d, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	onEmulator(t, d)
	return d
}

// TestCompilersWord: what the driver's compiler says of code that it cannot compile is in the
// error.
func TestCompilersWord(t *testing.T) {
	d := emulated(t)
	err := d.do(func() error {
		_, err := moduleOf("no code")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), ": ptxas fatal : Missing .version directive") {
		t.Errorf("%v", err)
	}
}

func TestMemory(t *testing.T) {
	d := emulated(t, "MEMORY", "1048576")
	free, total := d.MemInfo()
	if free != 1<<20 || total != 1<<20 {
		t.Fatalf("%d of %d bytes are free", free, total)
	}
	a, err := d.Malloc(1 << 19)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Malloc(1<<19 + 1); !errors.Is(err, allocsim.ErrOutOfMemory) {
		t.Errorf("more than there is: %v", err)
	}
	if err := d.Free(a, 1); err == nil || !strings.Contains(err.Error(), "no 1 bytes are allocated") {
		t.Errorf("free of a part: %v", err)
	}
	data := []byte("what was written is read")
	back := make([]byte, len(data))
	if err := errors.Join(d.Set(a, 1<<19, 7), d.Write(a+16, data), d.Read(back, a+16)); err != nil || string(back) != string(data) {
		t.Errorf("read %q, %v", back, err)
	}
	one := make([]byte, 1)
	if err := d.Read(one, a+15); err != nil || one[0] != 7 {
		t.Errorf("set gave %d, %v", one[0], err)
	}
	if err := d.Free(a, 1<<19); err != nil {
		t.Error(err)
	}
	if err := d.Free(a, 1<<19); err == nil {
		t.Error("a second free passes")
	}
	if free, _ := d.MemInfo(); free != 1<<20 {
		t.Errorf("%d bytes are free in the end", free)
	}
}

func TestCloseFreesAll(t *testing.T) {
	d := emulated(t, "MEMORY", "1048576")
	for range 3 {
		if _, err := d.Malloc(1 << 18); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if _, err := d.Malloc(1); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	d, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if free, _ := d.MemInfo(); free != 1<<20 {
		t.Errorf("%d bytes are free: a leak", free)
	}
}

func TestFailedAllocation(t *testing.T) {
	d := emulated(t, "FAIL_ALLOC", "2")
	var failed []int
	for i := range 4 {
		if _, err := d.Malloc(512); errors.Is(err, allocsim.ErrOutOfMemory) {
			failed = append(failed, i)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if len(failed) != 1 || failed[0] != 1 {
		t.Errorf("allocations %v failed", failed)
	}
}

// fill is a call that writes n numbers.
func fill(a allocsim.Address, n int64) *kernel.Call {
	return &kernel.Call{Kernel: kernel.Fill, F: []float64{1},
		T: []kernel.Tensor{{At: uint64(a), DType: tensor.Float32, Size: tensor.D(n), Stride: tensor.D(1)}}}
}

// TestFailedLaunch: the failure of a kernel shows where one waits for it, and
// again at each later call.
func TestFailedLaunch(t *testing.T) {
	d := emulated(t, "FAIL_LAUNCH", "2")
	a, err := d.Malloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Launch(fill(a, 1024)), d.Synchronize()); err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(fill(a, 1024)); err != nil {
		t.Errorf("a launch waits: %v", err)
	}
	for range 2 {
		if err := d.Synchronize(); !errors.Is(err, cu.IllegalAddress) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := d.Malloc(512); !errors.Is(err, cu.IllegalAddress) {
		t.Errorf("an allocation on a GPU that failed: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close repeats what was said: %v", err)
	}
}

// TestFailureUntold: a failure that was not waited for is reported by Close.
func TestFailureUntold(t *testing.T) {
	d := emulated(t, "FAIL_LAUNCH", "1")
	a, err := d.Malloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Launch(fill(a, 1024)), d.Launch(fill(a, 1024))); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); !errors.Is(err, cu.IllegalAddress) || !strings.Contains(err.Error(), "the GPU failed: kernel fill, or one before it: ") {
		t.Errorf("got %v", err)
	}
}

// TestVanished: whatever call it is from which on the driver fails, errors come
// back and nothing hangs.
func TestVanished(t *testing.T) {
	for from := 1; from < 24; from++ {
		t.Setenv("MEMPLAN_EMULATOR_VANISH", string(rune('0'+from/10))+string(rune('0'+from%10)))
		t.Cleanup(func() { _ = load() })
		if _, err := Available(); err != nil && !errors.Is(err, cu.Unknown) {
			absent(t, err)
		}
		d, err := Open(0)
		if err != nil {
			continue
		}
		onEmulator(t, d)
		a, err := d.Malloc(4096)
		for i := 0; err == nil && i < 20; i++ {
			err = errors.Join(d.Launch(fill(a, 1024)), d.Write(a, make([]byte, 16)), d.Set(a, 16, 0), d.Read(make([]byte, 16), a))
		}
		if !errors.Is(err, cu.Unknown) {
			t.Errorf("from call %d on: %v", from, err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("from call %d on: Close repeats what was said: %v", from, err)
		}
	}
}

func TestOpen(t *testing.T) {
	emulated(t, "DEVICES", "1")
	if _, err := Open(1); err == nil || err.Error() != "there is no GPU 1: there are 1, counted from 0" {
		t.Error(err)
	}
	t.Setenv("MEMPLAN_EMULATOR_CAPABILITY", "6")
	if _, err := Open(0); err == nil || err.Error() != "GPU 0: emulated GPU has compute capability 6.0; the kernels need 7.0 (Volta) or later" {
		t.Error(err)
	}
	t.Setenv("MEMPLAN_EMULATOR_DEVICES", "0")
	if _, err := Open(0); err == nil || err.Error() != "the CUDA driver finds no GPU" {
		t.Error(err)
	}
}

// TestOrder: launches that are not waited for run in their order, with copies.
func TestOrder(t *testing.T) {
	d := open(t)
	a, err := d.Malloc(4 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(fill(a, 4096)); err != nil {
		t.Fatal(err)
	}
	x := fill(a, 4096).T[0]
	for range 10 {
		if err := d.Launch(&kernel.Call{Kernel: kernel.Affine, F: []float64{2, 1}, T: []kernel.Tensor{x, x}}); err != nil {
			t.Fatal(err)
		}
	}
	back := make([]byte, 4)
	if err := errors.Join(d.Read(back, a+4*4095), d.Free(a, 4*4096)); err != nil || tensor.Float32.Number(back) != 2047 {
		t.Errorf("got %v, %v", tensor.Float32.Number(back), err)
	}
}

// TestModulesLoaded: what was not launched is not compiled, and a function once.
func TestModulesLoaded(t *testing.T) {
	d := emulated(t)
	check := func(want int, when string) {
		t.Helper()
		if err := d.Synchronize(); err != nil {
			t.Fatal(err)
		}
		if err := d.do(func() error {
			if len(d.modules) != want {
				t.Errorf("%s: %d modules, not %d", when, len(d.modules), want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	check(0, "at the start")
	a, err := d.Malloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Launch(fill(a, 1024)); err != nil {
			t.Fatal(err)
		}
		check(1, "a fill")
	}
	if err := d.Free(a, 4096); err != nil {
		t.Fatal(err)
	}
}
