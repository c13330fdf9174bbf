package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/memplan/memplan/internal/files"
)

// interrupted is what is said of a command that a signal ended.
const interrupted = "memplan: interrupted"

// grace is how long a command may take to end by itself when it is interrupted:
// what waits for a file or a pipe does not.
const grace = 350 * time.Millisecond

// signals are SIGINT and SIGTERM while a command runs.
type signals struct {
	in   chan os.Signal
	over chan struct{}
	end  func()

	mu      sync.Mutex
	came    syscall.Signal
	patient bool // the command ends by itself, and a second signal ends it at once
}

type signalsKey struct{}

// patient tells who waits for signals that the command saves its work when one comes, however long
// that takes.
func patient(ctx context.Context) {
	if s, ok := ctx.Value(signalsKey{}).(*signals); ok {
		s.mu.Lock()
		s.patient = true
		s.mu.Unlock()
	}
}

// interruptible returns a context that ends with the first signal. When the grace
// is over, or with a second signal, the process ends.
func interruptible(stderr io.Writer) (context.Context, *signals) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &signals{in: make(chan os.Signal, 2), over: make(chan struct{})}
	s.end = sync.OnceFunc(func() {
		signal.Stop(s.in)
		close(s.over)
		cancel()
	})
	signal.Notify(s.in, os.Interrupt, syscall.SIGTERM)
	go func() {
		var over <-chan time.Time
		select {
		case <-s.over:
			return
		case sig := <-s.in:
			s.mu.Lock()
			s.came, _ = sig.(syscall.Signal)
			if !s.patient {
				over = time.After(grace)
			}
			s.mu.Unlock()
			cancel()
		}
		select {
		case <-s.over:
			return
		case <-s.in:
		case <-over:
		}
		files.Abandon()
		fmt.Fprintln(stderr, interrupted)
		os.Exit(s.code())
	}()
	return context.WithValue(ctx, signalsKey{}, s), s
}

// code is the exit code that the signal asks for, as of a shell; 0: none came.
func (s *signals) code() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came == 0 {
		return exitOK
	}
	return exitSignal + int(s.came)
}

func (s *signals) stop() { s.end() }
