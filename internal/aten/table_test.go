package aten

import (
	"reflect"
	"testing"

	"github.com/memplan/memplan/internal/op"
)

// TestEvidence checks that the list of recordings is of the rows of the table, and of
// no derivatives that they lack.
func TestEvidence(t *testing.T) {
	found := map[*op.Op]op.Evidence{}
	for _, r := range Rows() {
		found[r] = r.Evidence()
	}
	if WriteEvidence(found) != evidence {
		t.Errorf("%s is not of the rows of the table: run go run ./tools/accuracy -update", EvidenceFile)
	}
}

// TestArgumentsAreKept checks that every argument that an operator's signature takes has
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
