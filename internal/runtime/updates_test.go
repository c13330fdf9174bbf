package runtime

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// hyperOf are the arguments of an optimizer.
func hyperOf(name string, given ...program.KwArg) hyper {
	return hyper{&program.Optimizer{Row: optim.Lookup(name), Given: given}, 0}
}

// TestMuonStep follows a step of Muon on a matrix of one number. Divided by its norm
// it is 1, and each iteration makes a*x + (b*x² + c*x⁴)*x of it, rounded to bfloat16.
func TestMuonStep(t *testing.T) {
	round := func(v float64) float64 { return inBFloat16([]float64{v})[0] }
	x := 1.0
	for range 5 {
		square := round(x * x)
		x = round(3.4445*x + round(-4.775*square+2.0315*square*square)*x)
	}
	s := &stepAside{step: 1, size: []int{1, 1}, dtype: tensor.Float32, p: []float64{0.5}, g: []float64{2}, states: [][]float64{{0}}}
	muon(hyperOf("Muon", program.KwArg{Name: "lr", Value: 0.1}), s)
	if want := 0.5*(1-0.1*0.1) - 0.1*x; math.Abs(s.p[0]-want) > 1e-12 {
		t.Errorf("parameter %v, not %v", s.p[0], want)
	}
	if want := 0.05 * 2.0; math.Abs(s.states[0][0]-want) > 1e-12 {
		t.Errorf("momentum %v, not %v", s.states[0][0], want)
	}
}

// TestMuonOrthogonal checks that a step moves a matrix along one whose rows are
// nearly orthogonal and of length about 1, whichever side is longer.
func TestMuonOrthogonal(t *testing.T) {
	r := newStream(3)
	for _, size := range [][]int{{4, 9}, {9, 4}} {
		s := &stepAside{step: 1, size: size, dtype: tensor.Float32, p: make([]float64, 36), g: make([]float64, 36), states: [][]float64{make([]float64, 36)}}
		for i := range s.g {
			s.g[i] = r.normal()
		}
		muon(hyperOf("Muon", program.KwArg{Name: "lr", Value: 1.0}, program.KwArg{Name: "weight_decay", Value: 0.0}), s)
		scale(s.p, -1/math.Sqrt(max(1, float64(size[0])/float64(size[1]))))
		x, m, n := s.p, size[0], size[1]
		if m > n {
			x, m, n = transposed(x, m, n), n, m
		}
		for i, v := range product2(x, transposed(x, m, n), m, n, m) {
			if i%(m+1) == 0 && (v < 0.4 || v > 1.5) || i%(m+1) != 0 && math.Abs(v) > 0.45 {
				t.Errorf("%v: product %d of rows is %v", size, i, v)
			}
		}
	}
}

// TestEightBitSteps writes out the steps of bitsandbytes' kernels.
func TestEightBitSteps(t *testing.T) {
	w, m, v := []float64{1}, []float64{0.5}, []float64{0.25}
	adamStep(hyperOf("AdamW8bit", program.KwArg{Name: "lr", Value: 0.1}), 2, w, []float64{2}, m, v)
	m2, v2, root := 0.9*0.5+0.1*2, 0.999*0.25+0.001*4, math.Sqrt(1-0.999*0.999)
	want := (1 - 0.1*root/(1-0.81)*m2/(math.Sqrt(v2)+root*1e-8)) * (1 - 0.1*0.01)
	if math.Abs(w[0]-want) > 1e-12 || math.Abs(m[0]-m2) > 1e-12 || math.Abs(v[0]-v2) > 1e-12 {
		t.Errorf("Adam: %v, %v, %v, not %v, %v, %v", w[0], m[0], v[0], want, m2, v2)
	}
	w, m = []float64{1}, []float64{-0.5}
	lionStep(hyperOf("Lion8bit", program.KwArg{Name: "lr", Value: 0.1}, program.KwArg{Name: "weight_decay", Value: 0.2}), w, []float64{2}, m)
	if want, m2 := 1*(1-0.1*0.2)+0.1, 0.99*-0.5+0.01*2; math.Abs(w[0]-want) > 1e-12 || math.Abs(m[0]-m2) > 1e-12 { // 0.9*-0.5 + 0.1*2 < 0
		t.Errorf("Lion: %v, %v, not %v, %v", w[0], m[0], want, m2)
	}
}

// TestHyper goes over the names of arguments that steps of optimizers read: each is one
// that an optimizer takes, and one that it does not take is refused where it is read.
func TestHyper(t *testing.T) {
	read := regexp.MustCompile(`\bh\.(?:value|float|flag|pair|has)\("(\w+)"\)`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range read.FindAllStringSubmatch(string(text), -1) {
			found++
			taken := false
			for r := range updates {
				taken = taken || r.Signature().Find(m[1]) != nil
			}
			if !taken {
				t.Errorf("%s reads %q, which no optimizer takes", f, m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("%d arguments only", found)
	}
	defer func() {
		if recover() == nil {
			t.Error("an argument that SGD does not take is 0")
		}
	}()
	hyperOf("SGD").float("betas")
}
