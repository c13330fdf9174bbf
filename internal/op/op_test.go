package op

import (
	"reflect"
	"testing"
)

// TestEdge checks the order in which gradients are handed on.
func TestEdge(t *testing.T) {
	r := &Op{Last: []int{1, 2}}
	var got []int
	for k := range 5 {
		got = append(got, r.Edge(k, 5))
	}
	for i, want := range []int{0, 3, 4, 1, 2} {
		if got[i] != want {
			t.Fatalf("the order is %v", got)
		}
	}
}

// a field in which its row finds it.
func TestArgumentsAreKept(t *testing.T) {
	seen := 0
	for _, name := range Names() {
		s := Lookup(name)
		fields := map[string]bool{}
		if s.Op.Args != nil {
			for _, f := range reflect.VisibleFields(reflect.TypeOf(s.Op.Args).Elem()) {
				fields[f.Tag.Get("arg")] = true
			}
		}
		for _, p := range s.Sig.Params {
			if p.IsTensor() {
				continue
			}
			seen++
			if !fields[p.Name] {
				t.Errorf("%s: no field is for %s", name, p.Name)
			}
		}
	}
	if seen < 300 {
		t.Errorf("only %d arguments", seen)
	}
}
