package op

import "testing"

// TestEvidence checks that the list of recordings is of the rows of the table, and of
// no derivatives that they lack.
func TestEvidence(t *testing.T) {
	found := map[*Op]Evidence{}
	for _, r := range Rows() {
		found[r] = r.Evidence()
	}
	if WriteEvidence(found) != evidence {
		t.Errorf("%s is not of the rows of the table: run go run ./tools/accuracy -update", EvidenceFile)
	}
}
