package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/memplan/memplan/internal/pool"
)

// parallel calls f for parts of n things, each of grain but for the last, on as
// many goroutines as there are processors. What f does must not depend on the
// order of the parts; that they are always the same makes sums repeatable.
// A panic in f is one of parallel.
func parallel(n, grain int, f func(from, to int)) {
	parts := (n + grain - 1) / grain
	workers := min(runtime.GOMAXPROCS(0), parts)
	if workers <= 1 {
		for from := 0; from < n; from += grain {
			f(from, min(from+grain, n))
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= parts {
				return
			}
			f(i*grain, min((i+1)*grain, n))
		}
	}
	var (
		wg     sync.WaitGroup
		failed atomic.Pointer[pool.Panic]
	)
	for range workers - 1 {
		wg.Go(func() {
			if p := pool.Catch(work); p != nil {
				failed.Store(p)
			}
		})
	}
	work()
	wg.Wait()
	if p := failed.Load(); p != nil {
		panic(p)
	}
}

// pool32 and pool64 hold memory for intermediate numbers between kernels.
var pool32, pool64 sync.Pool

// borrow returns n numbers, whatever was left in them, and what gives them back.
func borrow[T float](n int) ([]T, func()) {
	pool := &pool64
	if _, single := any(T(0)).(float32); single {
		pool = &pool32
	}
	p, _ := pool.Get().(*[]T)
	if p == nil || cap(*p) < n {
		s := make([]T, n)
		p = &s
	}
	return (*p)[:n], func() { pool.Put(p) }
}
