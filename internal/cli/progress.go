package cli

import (
	"fmt"
	"time"
)

// progress shows how far a long command is, on standard error if that is a
// terminal, and only once it takes long enough to be noticed.
type progress struct {
	s       *Streams
	started time.Time
	shown   time.Time
}

const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

func newProgress(s *Streams) *progress { return &progress{s: s, started: time.Now()} }

func (p *progress) show(done, total int) { p.line("%d of %d checked", done, total) }

// tried shows how far a search for changes is.
func (p *progress) tried(n, found int) { p.line("%d combinations simulated, %d found", n, found) }

func (p *progress) line(format string, args ...any) {
	now := time.Now()
	if !p.s.ErrTTY || now.Sub(p.started) < progressAfter || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	fmt.Fprintf(p.s.Err, "\r\x1b[K"+format, args...)
}

// clear takes the line away.
func (p *progress) clear() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.s.Err, "\r\x1b[K")
	}
}
