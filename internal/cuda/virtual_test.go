//go:build cuda

package cuda

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cuda/driver"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/tensor"
)

const smallGranule = 2 * tensor.MiB

// wants fails unless an error says something.
func wants(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one that says %q", err, text)
	}
}

// unused fails unless all memory of a device of 8 MiB is free, and nothing is
// reserved or mapped.
func unused(t *testing.T, d *Device) {
	t.Helper()
	if free, _ := d.MemInfo(); free != 8*tensor.MiB || d.total != 0 || len(d.virtual.mapped) != 0 {
		t.Errorf("%d bytes are free, %d are held, %d granules are mapped", free, d.total, len(d.virtual.mapped))
	}
}

// TestExpandable maps parts of a reservation, which then can be used as one.
func TestExpandable(t *testing.T) {
	d := emulated(t, "MEMORY", "8388608")
	a, err := d.Reserve(16 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	at := func(n tensor.Bytes) allocsim.Address { return a + allocsim.Address(n) }
	if err := errors.Join(d.Map(a, 2*smallGranule, smallGranule), d.Map(at(2*smallGranule), smallGranule, smallGranule)); err != nil {
		t.Fatal(err)
	}
	if free, _ := d.MemInfo(); free != smallGranule {
		t.Errorf("%d bytes are free", free)
	}
	data, back := []byte("over a border"), make([]byte, 13)
	if err := errors.Join(d.Write(at(2*smallGranule)-4, data), d.Read(back, at(2*smallGranule)-4)); err != nil || string(back) != string(data) {
		t.Errorf("read %q, %v", back, err)
	}
	if err := errors.Join(d.Launch(fill(a, int64(3*smallGranule)/4)), d.Read(back[:4], at(3*smallGranule)-4)); err != nil || tensor.Float32.Number(back) != 1 {
		t.Errorf("a kernel over all that is mapped left %v, %v", back[:4], err)
	}
	if err := d.Map(at(3*smallGranule), 2*smallGranule, smallGranule); !errors.Is(err, allocsim.ErrOutOfMemory) {
		t.Errorf("more than there is: %v", err)
	}
	wants(t, d.Map(at(3*smallGranule), smallGranule, tensor.MiB), "in pieces of 1048576 cannot be mapped: the GPU maps multiples of 2097152")
	wants(t, d.Unmap(at(3*smallGranule), smallGranule, smallGranule), "no 2097152 bytes are mapped at")
	wants(t, d.Unreserve(a, 16*tensor.MiB), "some are mapped still")
	wants(t, d.Unreserve(a, smallGranule), "no 2097152 bytes are reserved at")
	if err := errors.Join(d.Unmap(a, 3*smallGranule, smallGranule), d.Unreserve(a, 16*tensor.MiB)); err != nil {
		t.Error(err)
	}
	unused(t, d)
}

// TestExpandableLimit: what is mapped counts as what is allocated.
func TestExpandableLimit(t *testing.T) {
	d := emulated(t, "MEMORY", "8388608")
	d.Limit(6 * tensor.MiB)
	a, err := d.Reserve(16 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Map(a, 2*smallGranule, smallGranule); err != nil {
		t.Fatal(err)
	}
	if free, total := d.MemInfo(); free != 2*tensor.MiB || total != 6*tensor.MiB {
		t.Errorf("%d of %d bytes are free", free, total)
	}
	if _, err := d.Malloc(2*tensor.MiB + 1); !errors.Is(err, allocsim.ErrOutOfMemory) {
		t.Errorf("an allocation beyond the limit: %v", err)
	}
	if err := d.Map(a+allocsim.Address(2*smallGranule), 2*smallGranule, smallGranule); !errors.Is(err, allocsim.ErrOutOfMemory) {
		t.Errorf("a mapping beyond the limit: %v", err)
	}
}

// TestExpandableFailures makes each call fail that mapping four granules takes:
// nothing stays mapped, and nothing is lost.
func TestExpandableFailures(t *testing.T) {
	for _, c := range []struct {
		setting string
		calls   int
		want    error
	}{
		{"FAIL_ALLOC", 4, allocsim.ErrOutOfMemory}, // cuMemCreate
		{"FAIL_MAP", 5, driver.Result(205)},        // cuMemMap, and cuMemSetAccess
	} {
		for n := 1; n <= c.calls+1; n++ {
			t.Run(c.setting+strconv.Itoa(n), func(t *testing.T) {
				d := emulated(t, "MEMORY", "8388608", c.setting, strconv.Itoa(n))
				a, err := d.Reserve(8 * tensor.MiB)
				if err != nil {
					t.Fatal(err)
				}
				if err = d.Map(a, 4*smallGranule, smallGranule); n > c.calls {
					if err != nil {
						t.Fatal(err)
					}
					return // Close has the rest to do
				}
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				unused(t, d)
				if err := d.Map(a, 4*smallGranule, smallGranule); err != nil {
					t.Errorf("again: %v", err)
				}
			})
		}
	}
}

// TestExpandableAddresses: reservations are given back, by Close too, or this runs
// out of addresses.
func TestExpandableAddresses(t *testing.T) {
	for range 4 {
		d := emulated(t, "MEMORY", "8388608", "ADDRESSES", "33554432")
		a, err := d.Reserve(32 * tensor.MiB)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Reserve(smallGranule); !errors.Is(err, driver.OutOfMemory) {
			t.Errorf("more addresses than there are: %v", err)
		}
		if err := errors.Join(d.Map(a, smallGranule, smallGranule), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestExpandableUnsupported(t *testing.T) {
	d := emulated(t, "VIRTUAL", "0")
	_, err := d.Reserve(smallGranule)
	wants(t, err, "expandable segments need virtual memory management, which this GPU's driver does not have")
}

// expandable is a job whose segments are.
func expandable(t *testing.T) *estimate.Job {
	return job(t, "lenet", "device.gpu=a100-40gb", "device.alloc_conf=expandable_segments:True", "train.batch_size=4", "train.clip_grad_norm=0.1")
}

// TestTrainExpandable trains with expandable segments: memory is what was
// predicted, out of memory included, and all of it is given back.
func TestTrainExpandable(t *testing.T) {
	j := expandable(t)
	predicted, err := estimate.Run(j)
	if err != nil {
		t.Fatal(err)
	}
	peak := predicted.Free.PeakReserved.Reserved
	d := emulated(t, "MEMORY", strconv.FormatInt(int64(peak), 10))
	got, err := train(j, d, 3)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Stats.AllocatedBytes.All.Peak, predicted.Free.PeakAllocated.Allocated; a != b {
		t.Errorf("peak allocated %d, predicted %d", a, b)
	}
	if got.Stats.ReservedBytes.All.Peak != peak {
		t.Errorf("peak reserved %d, predicted %d", got.Stats.ReservedBytes.All.Peak, peak)
	}
	d.Limit(peak - 1)
	if _, err := train(j, d, 1); !errors.As(err, new(*allocsim.OOMError)) {
		t.Errorf("with a byte less: %v", err)
	}
	if free, _ := d.MemInfo(); free != peak-1 || d.total != 0 || len(d.virtual.mapped) != 0 {
		t.Errorf("%d bytes are free, %d are held, %d granules are mapped", free, d.total, len(d.virtual.mapped))
	}
}

// TestTrainExpandableFailures makes mapping fail here and there in a run: it ends
// with an error or, where memory was short only once, goes on; and all memory is
// given back.
func TestTrainExpandableFailures(t *testing.T) {
	j := expandable(t)
	for _, setting := range []string{"FAIL_ALLOC", "FAIL_MAP"} {
		for n := 1; n < 40; n += 7 {
			d := emulated(t, setting, strconv.Itoa(n))
			t.Setenv("MEMPLAN_EMULATOR_"+setting, "0") // of the next
			_, err := train(j, d, 1)
			if oom := (*allocsim.OOMError)(nil); err != nil && !errors.As(err, &oom) && !errors.Is(err, driver.Result(205)) {
				t.Errorf("%s %d: another error: %v", setting, n, err)
			}
			if free, total := d.MemInfo(); free != total || d.total != 0 || len(d.virtual.mapped) != 0 {
				t.Errorf("%s %d: %d of %d bytes are free, %d granules are mapped", setting, n, free, total, len(d.virtual.mapped))
			}
			if err := d.Close(); err != nil {
				t.Errorf("%s %d: %v", setting, n, err)
			}
		}
	}
}
