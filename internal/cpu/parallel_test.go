package cpu

import (
	"testing"

	"github.com/memplan/memplan/internal/pool"
)

// A panic on another goroutine is one of the caller.
func TestParallelPanics(t *testing.T) {
	for at := range 8 {
		caught := pool.Catch(func() {
			parallel(8, 1, func(from, _ int) {
				if from == at {
					panic("boom")
				}
			})
		})
		if caught == nil || caught.Value != "boom" {
			t.Errorf("part %d: caught %v", at, caught)
		}
	}
}
