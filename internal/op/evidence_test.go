package op

import "testing"

// TestEvidence checks that the list of recordings is of the rows of the table, and
// that the judgement of a row counts its derivative.
func TestEvidence(t *testing.T) {
	rows := map[string]*Op{}
	for _, r := range Rows() {
		rows[r.Name] = r
		if _, listed := table.evidence[r.Name]; !listed {
			t.Errorf("%s is not in %s: run go run ./tools/accuracy -update", r.Name, EvidenceFile)
		}
	}
	for name, e := range table.evidence {
		switch r := rows[name]; {
		case r == nil:
			t.Errorf("%s is in %s, and in the table no more: run go run ./tools/accuracy -update", name, EvidenceFile)
		case r.Grad == nil && e.Backward != "":
			t.Errorf("%s has no derivative, and evidence of one: %+v", name, e)
		}
	}
	grad := func(*Back) {}
	for _, c := range []struct {
		row  Op
		of   Evidence
		want Basis
	}{
		{Op{}, Evidence{}, Assumed},
		{Op{Source: "a.cpp"}, Evidence{}, Read},
		{Op{Source: "a.cpp"}, Evidence{Forward: "truth"}, Recorded},
		{Op{Source: "a.cpp", Grad: grad}, Evidence{Forward: "truth"}, Read},
		{Op{Grad: grad}, Evidence{Backward: "truth"}, Assumed},
		{Op{Grad: grad}, Evidence{Forward: "truth", Backward: "hf"}, Recorded},
		{Op{Source: "a.cpp", Refused: true}, Evidence{}, Refused},
	} {
		if got := c.row.Judge(c.of).Basis; got != c.want {
			t.Errorf("%+v with %+v: %s, want %s", c.row.Source, c.of, got, c.want)
		}
	}
}
