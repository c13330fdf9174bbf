// Package pool runs work on all cores.
package pool

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Panic is a panic that was caught, with the place that would be lost where it
// goes on from another.
type Panic struct {
	Value any
	Stack []byte
	At    string // the place in memplan's code, such as internal/aten/convolution.go:12; "" if it is not known
}

func (p *Panic) String() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// Catch runs f and returns its panic, nil if f returns.
func Catch(f func()) (p *Panic) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Panic: // of a Do within
			p = r
		default:
			p = &Panic{r, debug.Stack(), origin()}
		}
	}()
	f()
	return nil
}

// module begins the names of memplan's own functions.
const module = "github.com/memplan/memplan/"

// origin is the innermost place in memplan's code of the panic that is being
// recovered from: where it began, of one that was recovered and raised again.
func origin() string {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	at, wanted := "", false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			wanted = true
		case wanted && strings.HasPrefix(f.Function, module):
			folder, name := path.Split(strings.TrimPrefix(f.Function, module))
			pkg, _, _ := strings.Cut(name, ".")
			at, wanted = fmt.Sprintf("%s%s/%s:%d", folder, pkg, path.Base(f.File), f.Line), false
		}
		if !more {
			return at
		}
	}
}

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
				<-gate
				wg.Done()
			}()
			if p := Catch(func() { f(i) }); p != nil {
				mu.Lock()
				failed = p
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if failed != nil {
		panic(failed)
	}
}
