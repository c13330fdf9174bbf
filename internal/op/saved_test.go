package op

import (
	"fmt"
	"strings"
	"testing"
)

// TestSaved checks that a derivative reads what its row saves, and nothing else.
func TestSaved(t *testing.T) {
	r := &Op{Name: "three", Save: []Save{In(0), {Index: 2, Rest: true}, Out(1, 0)}}
	in, out := []*Tensor{{}, nil, nil, {}}, []*Tensor{nil, {}}
	b := &Back{Call: Call{Op: r}}
	b.Hold(in, out)
	for _, c := range []struct {
		read  func(i int) *Tensor
		i     int
		want  *Tensor
		error string
	}{
		{b.SavedIn, 0, in[0], ""},
		{b.SavedIn, 1, nil, "the derivative of three reads input 1, which it does not save"},
		{b.SavedIn, 2, nil, ""}, // listed, and not needed
		{b.SavedIn, 3, in[3], ""},
		{b.SavedIn, 4, nil, ""}, // there is no such input
		{b.SavedOut, 0, nil, "the derivative of three reads result 0, which it does not save"},
		{b.SavedOut, 1, out[1], ""},
	} {
		func() {
			defer func() {
				if e := recover(); e != nil || c.error != "" {
					if text := fmt.Sprint(e); c.error == "" || !strings.HasSuffix(text, c.error) {
						t.Errorf("%d: %v, not %q", c.i, e, c.error)
					}
				}
			}()
			if got := c.read(c.i); got != c.want {
				t.Errorf("%d: %v, not %v", c.i, got, c.want)
			}
		}()
	}
}
