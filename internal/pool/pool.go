// Package pool runs work on all cores.
package pool

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// Panic is a panic in a function that Do ran, with the place that would be lost
// where Do panics with it.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) String() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// Do runs f for 0 to n-1 on all cores. A panic in f is one of Do, with a *Panic.
func Do(n int, f func(i int)) {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed *Panic
	)
	gate := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		wg.Add(1)
		gate <- struct{}{}
		go func() {
			defer func() {
				if r := recover(); r != nil {
					mu.Lock()
					failed = &Panic{r, debug.Stack()}
					mu.Unlock()
				}
				<-gate
				wg.Done()
			}()
			f(i)
		}()
	}
	wg.Wait()
	if failed != nil {
		panic(failed)
	}
}
