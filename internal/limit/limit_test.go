package limit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/memplan/memplan/internal/tensor"
)

// counted runs f on a meter of a budget and returns how it ended.
func counted(b *Budget, f func(m *Meter)) (err error) {
	m := b.Meter()
	defer m.Close()
	defer Catch(&err)
	f(m)
	return nil
}

func TestWork(t *testing.T) {
	b := New(t.Context(), Limits{Time: time.Hour})
	defer b.Close()
	done := 0
	err := counted(b, func(m *Meter) {
		for range 2 * WorkPerSecond {
			m.Work(3600)
			done++
		}
	})
	met := (*Error)(nil)
	if !errors.As(err, &met) || met.Flag != TimeFlag {
		t.Fatalf("%v", err)
	}
	if done < WorkPerSecond-1 || done > WorkPerSecond+2 {
		t.Errorf("%d steps of %d", done, WorkPerSecond)
	}
	if err := counted(b, func(m *Meter) { m.Check() }); !errors.Is(err, met) {
		t.Errorf("the budget goes on: %v", err)
	}
	if context.Cause(b.Context(t.Context())) != error(met) {
		t.Error("its context does not tell why")
	}
}

func TestMemory(t *testing.T) {
	b := New(t.Context(), Limits{Memory: tensor.GiB})
	defer b.Close()
	for range 3 { // what a meter counted is given back
		if err := counted(b, func(m *Meter) { m.Hold(tensor.GiB / 2) }); err != nil {
			t.Fatal(err)
		}
	}
	if b.Held() != 0 {
		t.Errorf("%v are held", b.Held())
	}
	err := counted(b, func(m *Meter) {
		m.Hold(tensor.GiB / 2)
		m.Hold(tensor.GiB)
	})
	if met := (*Error)(nil); !errors.As(err, &met) || met.Flag != MemoryFlag {
		t.Fatalf("%v", err)
	}
}

// A budget ends with its context, and with the time.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := New(ctx, Limits{})
	defer b.Close()
	cancel()
	<-b.Context(ctx).Done()
	for b.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := counted(b, func(m *Meter) { m.Check() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	late := New(t.Context(), Limits{Time: time.Millisecond})
	defer late.Close()
	<-late.Context(ctx).Done()
	if met := (*Error)(nil); !errors.As(late.Err(), &met) || met.Flag != TimeFlag {
		t.Errorf("%v", late.Err())
	}
}

func TestNil(t *testing.T) {
	var b *Budget
	if err := counted(b, func(m *Meter) { m.Work(1 << 60); m.Hold(1 << 60); m.Check() }); err != nil || b.Err() != nil {
		t.Error(err)
	}
	b.Close()
	defer func() {
		if recover() == nil {
			t.Error("a panic that is no limit is lost")
		}
	}()
	counted(nil, func(*Meter) { panic("a mistake") })
}

// The guard ends the job that counted the most, and gives up where that does not
// help.
func TestGuard(t *testing.T) {
	g := NewGuard(Limits{Memory: tensor.GiB})
	small, large := g.Budget(t.Context()), g.Budget(t.Context())
	defer small.Close()
	defer large.Close()
	m := large.Meter()
	m.Hold(tensor.MiB)
	g.endLargest()
	if large.Err() == nil || small.Err() != nil {
		t.Errorf("ended: %v, %v", large.Err(), small.Err())
	}
	g.heap = func() tensor.Bytes { return 3 * tensor.GiB } // two are open
	lost := make(chan error, 1)
	g.Watch(t.Context(), func(err error) { lost <- err })
	if err := <-lost; err == nil {
		t.Error("no error")
	}
}
