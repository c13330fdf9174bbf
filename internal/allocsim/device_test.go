package allocsim

import (
	"errors"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

// TestVirtualDriverAddresses lists where ranges go: first fit, lowest first, in
// whole pages, and the gaps that are left.
func TestVirtualDriverAddresses(t *testing.T) {
	d := NewVirtualDriver(100 * tensor.MiB)
	at := map[string]Address{}
	size := map[string]tensor.Bytes{}
	place := func(name string, n tensor.Bytes, reserve bool, wantMiB tensor.Bytes) {
		t.Helper()
		f := d.Malloc
		if reserve {
			f = d.Reserve
		}
		a, err := f(n)
		if err != nil {
			t.Fatal(err)
		}
		if got := tensor.Bytes(a-virtualBase) / tensor.MiB; got != wantMiB {
			t.Errorf("%s is at %d MiB, want %d", name, got, wantMiB)
		}
		at[name], size[name] = a, n
	}
	drop := func(name string, reserved bool) {
		t.Helper()
		f := d.Free
		if reserved {
			f = d.Unreserve
		}
		if err := f(at[name], size[name]); err != nil {
			t.Fatal(err)
		}
	}
	place("a", 1, false, 0)
	place("b", 3*tensor.MiB, false, 2) // takes 4
	place("r", 300*tensor.MiB, true, 6)
	place("c", 10*tensor.MiB, false, 306)
	drop("b", false)
	drop("a", false)
	place("d", 6*tensor.MiB, false, 0) // a and b together
	drop("r", true)
	place("e", 20*tensor.MiB, false, 6)
	drop("d", false)
	drop("c", false)
	place("f", 8*tensor.MiB, false, 26) // 0 to 6 is too small
	place("g", 2*tensor.MiB, false, 0)
	c := d.Counters()
	if want := (DriverCounters{Mallocs: 7, Frees: 4, Used: 30 * tensor.MiB, Peak: 36 * tensor.MiB}); c != want {
		t.Errorf("counters %+v, want %+v", c, want)
	}
	if _, err := d.Malloc(80 * tensor.MiB); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("80 MiB more: %v", err)
	}
	if err := d.Free(at["d"]+Address(2*tensor.MiB), 2*tensor.MiB); err == nil {
		t.Error("memory that is not in use was freed")
	}
	if free, total := d.MemInfo(); free+d.Counters().Used < total || d.Counters().Failures != 1 {
		t.Errorf("free %v of %v, %+v", free, total, d.Counters())
	}
}

// TestOOMMessage compares with the messages that PyTorch 2.6 printed, on a
// device of 1 GiB after requests of 100 MiB, 300 B and 5 MiB.
func TestOOMMessage(t *testing.T) {
	a, err := New(Config{}, NewVirtualDriver(tensor.GiB), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SetMemoryFraction(0.5); err != nil {
		t.Fatal(err)
	}
	for _, n := range []tensor.Bytes{100 * tensor.MiB, 300, 5 * tensor.MiB} {
		if _, err := a.Alloc(n, 0); err != nil {
			t.Fatal(err)
		}
	}
	const common = " GPU 0 has a total capacity of 1024.00 MiB of which 902.00 MiB is free. 512.00 MiB allowed; Of the allocated memory 105.00 MiB is allocated by PyTorch, and 17.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
	for _, c := range []struct {
		n    tensor.Bytes
		want string
	}{
		{10 * tensor.GiB, "CUDA out of memory. Tried to allocate 10.00 GiB." + common},
		{1 << 60, "CUDA out of memory. Tried to allocate more than 1EB memory."},
		{1 << 59, "CUDA out of memory. Tried to allocate 536870912.00 GiB." + common},
		{1200000000, "CUDA out of memory. Tried to allocate 1.12 GiB." + common},
	} {
		_, err := a.Alloc(c.n, 0)
		var oom *OOMError
		if !errors.As(err, &oom) || !errors.Is(err, ErrOutOfMemory) || oom.Error() != c.want {
			t.Errorf("%d bytes:\n got %v\nwant %v", c.n, err, c.want)
		}
	}
	if s := a.Stats(); s.NumOOMs != 3 || s.NumAllocRetries != 3 { // 1 EiB does not count
		t.Errorf("%d failures, %d retries", s.NumOOMs, s.NumAllocRetries)
	}
}

func TestFormatSize(t *testing.T) {
	for _, c := range []struct {
		n    tensor.Bytes
		want string
	}{
		{0, "0 bytes"}, {1024, "1024 bytes"}, {1025, "1.00 KiB"}, {tensor.MiB, "1024.00 KiB"},
		{20 * tensor.MiB, "20.00 MiB"}, {tensor.GiB, "1024.00 MiB"}, {tensor.GiB + 1, "1.00 GiB"}, {80 * tensor.GiB, "80.00 GiB"},
	} {
		if got := formatSize(c.n); got != c.want {
			t.Errorf("formatSize(%d) = %q, want %q", int64(c.n), got, c.want)
		}
	}
}

// brokenDriver fails in ways that are not a lack of memory.
type brokenDriver struct {
	VirtualDriver
	fail string // the method that fails
}

var errBroken = errors.New("the bus is on fire")

func (d *brokenDriver) Malloc(n tensor.Bytes) (Address, error) {
	if d.fail == "Malloc" {
		return 0, errBroken
	}
	return d.VirtualDriver.Malloc(n)
}
func (d *brokenDriver) Free(a Address, n tensor.Bytes) error {
	if d.fail == "Free" {
		return errBroken
	}
	return d.VirtualDriver.Free(a, n)
}
func (d *brokenDriver) Reserve(n tensor.Bytes) (Address, error) {
	if d.fail == "Reserve" {
		return 0, errBroken
	}
	return d.VirtualDriver.Reserve(n)
}
func (d *brokenDriver) Map(a Address, n, granule tensor.Bytes) error {
	if d.fail == "Map" {
		return errBroken
	}
	return d.VirtualDriver.Map(a, n, granule)
}
func (d *brokenDriver) Unmap(a Address, n, granule tensor.Bytes) error {
	if d.fail == "Unmap" {
		return errBroken
	}
	return d.VirtualDriver.Unmap(a, n, granule)
}

// TestDriverErrors checks that errors of the driver other than a lack of memory
// come through, at once.
func TestDriverErrors(t *testing.T) {
	for _, c := range []struct {
		fail       string
		expandable bool
	}{{"Malloc", false}, {"Free", false}, {"Reserve", true}, {"Map", true}, {"Unmap", true}} {
		d := &brokenDriver{}
		d.reset(100*tensor.MiB, 0)
		a, err := New(Config{ExpandableSegments: c.expandable}, d, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.fail == "Free" || c.fail == "Unmap" {
			b, err := a.Alloc(60*tensor.MiB, 0)
			if err != nil {
				t.Fatal(err)
			}
			a.Free(b)
		}
		d.fail = c.fail
		if _, err := a.Alloc(70*tensor.MiB, 1); !errors.Is(err, errBroken) {
			t.Errorf("%s: Alloc returns %v", c.fail, err)
		}
		if s := a.Stats(); s.NumOOMs != 0 {
			t.Errorf("%s: counted as out of memory", c.fail)
		}
	}
}

// TestFreeMisuse checks that freeing what is not allocated does not go unseen.
func TestFreeMisuse(t *testing.T) {
	a, err := New(Config{}, NewVirtualDriver(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Alloc(100, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.Free(b)
	a.Free(Block{}) // no memory: nothing to free
	defer func() {
		if r, ok := recover().(string); !ok || !strings.Contains(r, "is not allocated") {
			t.Errorf("recovered %v", r)
		}
	}()
	a.Free(b)
}
