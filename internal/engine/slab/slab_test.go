package slab

import "testing"

// What an arena took back it hands out again, as zero values.
func TestClear(t *testing.T) {
	var a Arena[int]
	var first []*int
	for round := range 3 {
		for i := range 500 {
			n := 1 + i%7
			if i == 100 {
				n = 1000
			}
			s := a.Take(n)
			for k := range s {
				if s[k] != 0 {
					t.Fatal("a value that is not zero")
				}
				s[k] = 1
			}
			switch {
			case round == 0:
				first = append(first, &s[0])
			case first[i] != &s[0]:
				t.Fatalf("round %d: slice %d is new", round, i)
			}
		}
		a.Clear()
	}
	a = Arena[int]{}
	for range 1 << 20 {
		a.Take(1)
	}
	if n := len(a.slabs); n != kept {
		t.Errorf("a long play holds %d slabs", n)
	}
	for round := range 2 {
		a.Clear()
		for range 1 << 16 {
			if s := a.Take(1); s[0] != 0 {
				t.Fatalf("round %d: a value that is not zero", round)
			} else {
				s[0] = 1
			}
		}
	}
	var p Pool[int]
	v := p.Get(nil)
	*v = 1
	p.Put(v)
	p.Clear()
	if w := p.Get(nil); w != v || *w != 0 {
		t.Error("a new value, or one that is not zero")
	}
}
