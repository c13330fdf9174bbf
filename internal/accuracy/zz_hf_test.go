package accuracy

import ("testing";"os";"strings";"fmt")

func TestZZ(t *testing.T) {
	rs, err := LoadHF(os.Getenv("HFD"))
	if err != nil { t.Fatal(err) }
	for _, r := range rs {
		ok := false
		for _, k := range strings.Split(os.Getenv("HFK"), ",") { ok = ok || strings.Contains(r.Name, k) }
		if !ok { continue }
		c := r.Compare()
		pk := ""
		for _, s := range c.Steps { pk += fmt.Sprintf(" %.4f/%.4f", Percent(s.Allocated, s.RecordedAllocated), Percent(s.Reserved, s.RecordedReserved)) }
		fmt.Printf("%-45s %s %v %s %s\n", c.Name, c.Skipped, c.Exact(), c.Unequal(), pk)
	}
}
