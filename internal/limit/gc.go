package limit

import (
	"runtime"
	"runtime/debug"

	"github.com/memplan/memplan/internal/tensor"
)

// GCPercent is the GOGC of memplan, which lets the heap grow to five times what is
// alive: short jobs of a few MiB are played one after the other, and a
// quarter of the time would go to collecting them.
const GCPercent = 400

// What a command makes that plans one usual job is not collected: the heap is for the
// first time where it has grown to youngHeap.
const (
	youngHeap    = 96 * tensor.MiB
	leastHeap    = 4 * tensor.MiB // of Go, with a GOGC of 100
	youngPercent = int(100 * youngHeap / leastHeap)
)

// young is garbage that the first collection finds.
type young struct{ _ *young }

// TuneGC sets GOGC, which restore sets back.
func TuneGC() (restore func()) {
	old := debug.SetGCPercent(youngPercent)
	runtime.AddCleanup(&young{}, func(struct{}) { grown() }, struct{}{})
	return func() { debug.SetGCPercent(old) }
}

// grown has the heap collected as one that has grown, unless GOGC was set to something
// else since.
func grown() {
	if now := debug.SetGCPercent(GCPercent); now != youngPercent {
		debug.SetGCPercent(now)
	}
}
