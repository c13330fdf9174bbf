package host

import (
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// TestHeld: two ordinary blocks that never live together, and three pinned ones
// of 600, 1000 and 1500 bytes. The first two are of one power of two and do not
// meet, so that one block of 1024 serves both; the third takes 2048.
func TestHeld(t *testing.T) {
	a := func(id int32, n tensor.Bytes) trace.Event { return trace.Event{Kind: trace.Alloc, ID: id, Bytes: n} }
	f := func(id int32) trace.Event { return trace.Event{Kind: trace.Free, ID: id} }
	events := []trace.Event{a(1, 100), f(1), a(2, 70), a(3, 600), f(3), a(4, 1000), a(5, 1500), f(4), f(5)}
	ordinary, locked, err := Held(events, []bool{false, false, false, true, true, true})
	if ordinary != 100 || locked != 1024+2048 || err != nil {
		t.Errorf("%d bytes and %d pinned (%v), want 100 and 3072", ordinary, locked, err)
	}
}
