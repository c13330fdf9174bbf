package op

import "testing"

// TestEvidence checks that the list of recordings is of the rows of the table, and
// that the judgement of a row counts its derivative.
func TestEvidence(t *testing.T) {
	rows := map[string]*Row{}
	for _, r := range Rows() {
		rows[r.Name] = r
		if _, listed := recordings[r.Name]; !listed {
			t.Errorf("%s is not in %s: run go run ./tools/accuracy -update", r.Name, EvidenceFile)
		}
	}
	for name, e := range recordings {
		switch r := rows[name]; {
		case r == nil:
			t.Errorf("%s is in %s, and in the table no more: run go run ./tools/accuracy -update", name, EvidenceFile)
		case r.Grad == nil && e.Backward != "":
			t.Errorf("%s has no derivative, and evidence of one: %+v", name, e)
		}
	}
	grad := func(*Back) {}
	for _, c := range []struct {
		row  Row
		of   Evidence
		want Basis
	}{
		{Row{}, Evidence{}, Assumed},
		{Row{Source: "a.cpp"}, Evidence{}, Read},
		{Row{Source: "a.cpp"}, Evidence{Forward: "truth"}, Recorded},
		{Row{Source: "a.cpp", Grad: grad}, Evidence{Forward: "truth"}, Read},
		{Row{Grad: grad}, Evidence{Backward: "truth"}, Assumed},
		{Row{Grad: grad}, Evidence{Forward: "truth", Backward: "hf"}, Recorded},
		{Row{Source: "a.cpp", Refused: true}, Evidence{}, Refused},
	} {
		if got := c.row.Judge(c.of).Basis; got != c.want {
			t.Errorf("%+v with %+v: %s, want %s", c.row.Source, c.of, got, c.want)
		}
	}
}
