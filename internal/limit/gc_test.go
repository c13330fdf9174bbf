package limit

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

// The heap is collected at another GOGC after the first collection, unless that was set
// since.
func TestTuneGC(t *testing.T) {
	before := percent()
	restore := TuneGC()
	if got := percent(); got != youngPercent {
		t.Errorf("GOGC is %d, want %d", got, youngPercent)
	}
	for range 1000 {
		if runtime.GC(); percent() == GCPercent {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := percent(); got != GCPercent {
		t.Errorf("after a collection GOGC is %d, want %d", got, GCPercent)
	}
	restore()
	if grown(); percent() != before {
		t.Errorf("at the end GOGC is %d, want %d", percent(), before)
	}
}
