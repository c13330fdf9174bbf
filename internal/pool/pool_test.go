package pool

import (
	"regexp"
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

// again raises a panic that it recovers, as what passes on another's does.
func again(f func()) {
	defer func() { panic(recover()) }()
	f()
}

// A panic is caught with the place where it began, through those that passed it
// on and the goroutines of a Do.
func TestCatch(t *testing.T) {
	if p := Catch(func() {}); p != nil {
		t.Errorf("nothing panics, and %v was caught", p)
	}
	var list []int
	boom := func() { list[3] = 0 } // the line of the panic
	here := regexp.MustCompile(`^internal/pool/pool_test.go:(\d+)$`)
	lines := map[string]bool{}
	for _, f := range []func(){boom, func() { again(boom) }, func() { again(func() { again(boom) }) }, func() { Do(3, func(int) { again(boom) }) }} {
		p := Catch(f)
		if p == nil || !strings.Contains(p.String(), "index out of range [3]") || !here.MatchString(p.At) {
			t.Fatalf("caught %+v", p)
		}
		lines[p.At] = true
	}
	if len(lines) != 1 {
		t.Errorf("one panic has the places %v", lines)
	}
}
