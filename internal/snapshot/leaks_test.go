package snapshot

import "testing"

// TestLeaks holds which recordings have leaks, and where.
func TestLeaks(t *testing.T) {
	want := map[string]struct {
		where string // the line that keeps most
		turns int
	}{
		"leak":     {"make.py:25 step: cross_entropy", 6},
		"leakeval": {"make.py:14 forward", 6},
		"fragoom":  {"make.py:88 <module>", 40},
		"streams":  {"make.py:83 <module>", 20},
	}
	for name, s := range readAll(t) {
		for i := range s.Devices {
			x, err := s.Devices[i].Explain()
			if err != nil {
				t.Fatal(err)
			}
			w, ok := want[name]
			if !ok && len(x.Leaks) > 0 {
				t.Errorf("%s: a leak at %v, %d of %d turns", name, &x.Leaks[0].Where, x.Leaks[0].Turns, x.Leaks[0].Of)
			}
			if ok && (len(x.Leaks) == 0 || x.Leaks[0].Where.String() != w.where || x.Leaks[0].Turns != w.turns) {
				t.Errorf("%s: leaks %+v, want %s in %d turns", name, x.Leaks, w.where, w.turns)
			}
		}
	}
}
