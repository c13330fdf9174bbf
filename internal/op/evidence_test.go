package op

import "testing"

// TestJudge checks that the judgement of a row counts its derivative.
func TestJudge(t *testing.T) {
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
