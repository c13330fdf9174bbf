// Package pool runs work on all cores.
package pool

import (
	"runtime"
	"sync"
)

// Do runs f for 0 to n-1 on all cores. A panic in f is that of Do.
func Do(n int, f func(i int)) {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed any
	)
	gate := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		wg.Add(1)
		gate <- struct{}{}
		go func() {
			defer func() {
				if r := recover(); r != nil {
					mu.Lock()
					failed = r
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
