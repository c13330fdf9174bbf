package pool

import (
	"strings"
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
		if p, ok := recover().(*Panic); !ok || p.Value != "five" || !strings.Contains(p.String(), "TestDo") {
			t.Errorf("recovered %v", p)
		}
	}()
	Do(10, func(i int) {
		if i == 5 {
			panic("five")
		}
	})
}
