package data

import (
	"testing"

	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/program"
)

// broken panics from batch 1 on, which is made in the background.
type broken struct{}

func (broken) Values(n int, _ program.Input) ([]byte, error) {
	if n > 0 {
		panic("boom")
	}
	return nil, nil
}

// A panic in the background is one of who asks for the batch.
func TestPrefetchPanics(t *testing.T) {
	in := program.Input{Name: "x"}
	p := NewPrefetch(broken{}, []program.Input{in})
	if _, err := p.Values(0, in); err != nil {
		t.Fatal(err)
	}
	caught := pool.Catch(func() { _, _ = p.Values(1, in) })
	if caught == nil || caught.Value != "boom" {
		t.Errorf("caught %v", caught)
	}
}
