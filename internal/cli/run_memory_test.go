package cli

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// TestHostMemory: a run that takes more than there is, is refused; one that takes nearly all
// is noted.
func TestHostMemory(t *testing.T) {
	for _, c := range []struct {
		need    tensor.Bytes
		refused bool
		notes   int
	}{{70, false, 0}, {90, false, 1}, {101, true, 0}} {
		rep := &report.Run{}
		err := judged(rep, c.need*tensor.GiB, tensor.GiB, 100*tensor.GiB)
		if (err != nil) != c.refused || len(rep.Notes) != c.notes {
			t.Errorf("%d of 100 GiB: %v, %d notes", c.need, err, len(rep.Notes))
		}
		if err != nil && !strings.Contains(err.Error(), "about 101.00 GiB of host memory, 1.00 GiB of it for the job's segments, and 100.00 GiB of this machine's are available") {
			t.Error(err)
		}
	}
	const block = 30 * tensor.MiB // a segment of its own
	n, err := segmentsOf([]trace.Event{
		{Kind: trace.Alloc, ID: 1, Bytes: block}, {Kind: trace.Alloc, ID: 2, Bytes: block}, {Kind: trace.Free, ID: 1}, {Kind: trace.Alloc, ID: 3, Bytes: block},
	})
	if err != nil || n != 2*block {
		t.Errorf("three blocks of which two live take %v (%v)", n, err)
	}
}
