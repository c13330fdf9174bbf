package device

import (
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

func TestParseCUDA(t *testing.T) {
	for in, want := range map[string]CUDA{"11.3": {11, 3}, "cu113": {11, 3}, "CU130": {13, 0}, " 12.4 ": {12, 4}, "9.2": {9, 2}} {
		if got, err := ParseCUDA(in); err != nil || got != want {
			t.Errorf("ParseCUDA(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "11", "cu", "cu1", "11.", ".3", "11.3.1", "8.0", "11.10", "12.-4", "twelve", "99.1"} {
		if got, err := ParseCUDA(in); err == nil {
			t.Errorf("ParseCUDA(%q) = %v", in, got)
		}
	}
}

// TestEagerContexts checks that the rows are of GPUs in the table and inside of what is
// said of these GPUs, and that a row that is left out is, too, but for the least and
// the most.
func TestEagerContexts(t *testing.T) {
	all := eagerContexts
	defer func() { eagerContexts = all }()
	outside := 0
	for i, e := range all {
		g, err := Lookup(e.gpu)
		if err != nil {
			t.Fatal(err)
		}
		f := g.ContextWith(CUDA{e.cuda, 1}, Eager)
		if e.size < f.Low || e.size > f.High || !f.Assumed {
			t.Errorf("%s: %v is not in %v to %v", e.source, e.size, f.Low, f.High)
		}
		eagerContexts = append(append([]eagerContext(nil), all[:i]...), all[i+1:]...)
		if f := g.ContextWith(CUDA{e.cuda, 1}, Eager); e.size < f.Low || e.size > f.High {
			outside++
		}
		eagerContexts = all
	}
	if outside > 2 {
		t.Errorf("%d of %d rows are outside of what the others say", outside, len(all))
	}
}

func TestContextWith(t *testing.T) {
	g, err := Lookup("rtx-3090")
	if err != nil {
		t.Fatal(err)
	}
	if f := g.ContextWith(CUDA{12, 4}, CUDA{12, 4}.Loads()); f != g.Context {
		t.Errorf("CUDA 12.4: %+v", f)
	}
	old := g.ContextWith(CUDA{11, 3}, CUDA{11, 3}.Loads())
	if old.Value < 1400*tensor.MiB || old.Value > 1700*tensor.MiB || old.Low < tensor.GiB || old.High < 1969*tensor.MiB {
		t.Errorf("CUDA 11.3: %v (%v to %v)", old.Value, old.Low, old.High)
	}
	if f := g.ContextWith(CUDA{12, 4}, Eager); f.Low != g.Context.Low+lazyKernels || f.High != old.High {
		t.Errorf("CUDA 12.4, eager: %v to %v", f.Low, f.High)
	}
	if f := g.ContextWith(CUDA{10, 1}, Eager); f.Value >= old.Value {
		t.Errorf("CUDA 10.1: %v", f.Value)
	}
}
