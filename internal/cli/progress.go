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
	logged  time.Time // when log last wrote
	now     func() time.Time
}

const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	logEvery      = 30 * time.Second
)

func newProgress(s *Streams) *progress {
	now := time.Now()
	return &progress{s: s, started: now, logged: now, now: time.Now}
}

func (p *progress) show(done, total int) { p.line("%d of %d checked", done, total) }

// tried shows how far a search for changes is.
func (p *progress) tried(n, found int) { p.line("%d combinations simulated, %d found", n, found) }

func (p *progress) line(format string, args ...any) {
	now := p.now()
	if !p.s.ErrTTY || now.Sub(p.started) < progressAfter || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	fmt.Fprintf(p.s.Err, "\r\x1b[K"+format, args...)
}

// log is line on a terminal; elsewhere, such as in the log of a job, a line of its own after
// every half minute.
func (p *progress) log(format string, args ...any) {
	if p.s.ErrTTY {
		p.line(format, args...)
		return
	}
	if now := p.now(); now.Sub(p.logged) >= logEvery {
		p.logged = now
		fmt.Fprintf(p.s.Err, "memplan: "+format+"\n", args...)
	}
}

// clear takes the line away.
func (p *progress) clear() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.s.Err, "\r\x1b[K")
	}
}
