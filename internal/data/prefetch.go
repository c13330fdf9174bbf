package data

import (
	"slices"

	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/program"
)

// values is what batches come from.
type values interface {
	Values(n int, in program.Input) ([]byte, error)
}

// Prefetch makes the next batch in the background while one is used.
type Prefetch struct {
	from   values
	inputs []program.Input
	ready  map[int]chan batch
}

// batch is what came of each input, by name.
type batch struct {
	of     map[string]made
	failed *pool.Panic
}

type made struct {
	data []byte
	err  error
}

// NewPrefetch returns a source over another one, which may be asked by several
// goroutines at once.
func NewPrefetch(from values, inputs []program.Input) *Prefetch {
	return &Prefetch{from: from, inputs: inputs, ready: map[int]chan batch{}}
}

// Values returns an input of batch n. Batches are asked for in their order;
// inputs of other sizes, as of an evaluation, are made at once.
func (p *Prefetch) Values(n int, in program.Input) ([]byte, error) {
	if !slices.ContainsFunc(p.inputs, func(i program.Input) bool { return i.Name == in.Name && slices.Equal(i.Size, in.Size) }) {
		return p.from.Values(n, in)
	}
	if p.ready[n] == nil {
		p.start(n)
	}
	b := <-p.ready[n]
	p.ready[n] <- b
	if p.ready[n+1] == nil {
		delete(p.ready, n-1)
		p.start(n + 1)
	}
	if b.failed != nil {
		panic(b.failed)
	}
	return b.of[in.Name].data, b.of[in.Name].err
}

func (p *Prefetch) start(n int) {
	c := make(chan batch, 1)
	before := p.ready[n-1] // one batch at a time is made ahead
	p.ready[n] = c
	go func() {
		if before != nil {
			b := <-before
			before <- b
		}
		out := batch{of: map[string]made{}}
		out.failed = pool.Catch(func() {
			for _, in := range p.inputs {
				data, err := p.from.Values(n, in)
				out.of[in.Name] = made{data, err}
			}
		})
		c <- out
	}()
}
