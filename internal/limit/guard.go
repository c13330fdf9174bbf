package limit

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/memplan/memplan/internal/tensor"
)

// Guard opens the budgets of a command and watches the memory of the process: where
// what was counted is not all, it ends the job that counted the most.
type Guard struct {
	limits Limits
	heap   func() tensor.Bytes

	mu   sync.Mutex
	open map[*Budget]bool
}

// NewGuard returns a guard for jobs with these limits.
func NewGuard(l Limits) *Guard {
	return &Guard{limits: l, heap: heap, open: map[*Budget]bool{}}
}

// Limits are those of each job.
func (g *Guard) Limits() Limits { return g.limits }

// Budget opens a budget.
func (g *Guard) Budget(ctx context.Context) *Budget {
	b := New(ctx, g.limits)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[b] = true
	end := b.end
	b.end = func() {
		end()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, b)
	}
	return b
}

// How the guard looks at memory.
const (
	watchEvery = 20 * time.Millisecond
	// patience is how long a job that was ended may take to give its memory back.
	patience = 100 // looks
	// overdue is by how much more than the limit the process may have for so long.
	overdue = 1.5
)

// Watch looks at the memory of the process until ctx ends. Where ending jobs does
// not help it calls lost, which is expected to end the process.
func (g *Guard) Watch(ctx context.Context, lost func(error)) {
	if g.limits.Memory <= 0 {
		return
	}
	if g.limits.Memory < 4*youngHeap { // garbage counts
		grown()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for over := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h, most := g.heap(), g.allowed()
		if h <= most {
			over = 0
			continue
		}
		if over%patience == 0 {
			g.endLargest()
		}
		if over++; over > patience || h > tensor.Bytes(overdue*float64(most)) && over > 1 {
			lost(memoryError(g.limits.Memory))
			return
		}
	}
}

// allowed is what the jobs that are open may take together.
func (g *Guard) allowed() tensor.Bytes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limits.Memory * tensor.Bytes(max(len(g.open), 1))
}

// endLargest ends the job that counted the most bytes.
func (g *Guard) endLargest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var largest *Budget
	for b := range g.open {
		if b.Err() == nil && (largest == nil || b.Held() > largest.Held()) {
			largest = b
		}
	}
	if largest != nil {
		largest.stop(memoryError(g.limits.Memory))
	}
}

// heap is what objects take, dead ones among them until they are collected.
func heap() tensor.Bytes {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return tensor.Bytes(s[0].Value.Uint64())
}
