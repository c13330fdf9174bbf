package cli

import (
	"bytes"
	"testing"
	"time"
)

// TestProgressLog: off a terminal there is a line after every half minute, on one the line
// that stands there changes.
func TestProgressLog(t *testing.T) {
	at := time.Unix(0, 0)
	var out bytes.Buffer
	p := &progress{s: &Streams{Err: &out}, started: at, logged: at, now: func() time.Time { return at }}
	for step := 1; step <= 7; step++ {
		at = at.Add(10 * time.Second)
		p.log("step %d", step)
	}
	if got, want := out.String(), "memplan: step 3\nmemplan: step 6\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	out.Reset()
	p.s.ErrTTY = true
	p.log("step %d", 8)
	if got, want := out.String(), "\r\x1b[Kstep 8"; got != want {
		t.Errorf("on a terminal %q, not %q", got, want)
	}
}
