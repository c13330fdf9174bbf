package pool

import (
	"sync/atomic"
	"testing"
)

func TestDo(t *testing.T) {
	var sum atomic.Int64
	Do(100, func(i int) { sum.Add(int64(i)) })
	if sum.Load() != 4950 {
		t.Error(sum.Load())
	}
	defer func() {
		if r := recover(); r != "five" {
			t.Errorf("recovered %v", r)
		}
	}()
	Do(10, func(i int) {
		if i == 5 {
			panic("five")
		}
	})
}
