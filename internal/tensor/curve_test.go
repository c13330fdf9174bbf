package tensor

import "testing"

func TestCurve(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(k int64) int64
		at   []int64
		ok   bool
	}{
		{"constant", func(int64) int64 { return 7 }, []int64{2, 9}, true},
		{"line", func(k int64) int64 { return 3*k + 1 }, []int64{9, 2}, true},
		{"falling", func(k int64) int64 { return 1000 - 3*k }, []int64{1, 4}, true},
		{"line through three", func(k int64) int64 { return 3 * k }, []int64{5, 2, 40}, true},
		{"parabola", func(k int64) int64 { return 2*k*k + 3*k + 5 }, []int64{4, 16, 7}, true},
		{"steps", func(k int64) int64 { return k / 2 }, []int64{1, 4}, false},
		{"cubic", func(k int64) int64 { return k * k * k / 2 }, []int64{1, 4, 7}, false},
	} {
		p := PlacesAt(c.at...)
		var values []int64
		for _, k := range c.at {
			values = append(values, c.f(k))
		}
		curve, ok := p.Curve(values...)
		if ok != c.ok {
			t.Errorf("%s: a curve: %v", c.name, ok)
		}
		for k := int64(0); k < 50 && ok; k++ {
			n, fits := p.At(curve, k)
			a, b := p.From(k)
			if n != c.f(k) || !fits || float64(curve.First)+float64(curve.Slope)*a+float64(curve.Bend)*a*b != float64(n) {
				t.Errorf("%s: %d at %d, want %d", c.name, n, k, c.f(k))
			}
		}
	}
	p := PlacesAt(1, 2)
	if c, _ := p.Curve(1<<40, 1<<41); true {
		if _, ok := p.At(c, 1<<20); ok {
			t.Error("a value that is too large")
		}
	}
}

func TestSquare(t *testing.T) {
	p := PlacesAt(30, 7)
	c, ok := p.Square(4*30*30, 4*7*7)
	for k := int64(0); k < 50 && ok; k++ {
		if n, fits := p.At(c, k); n != 4*k*k || !fits {
			t.Errorf("%d at %d", n, k)
		}
	}
	if _, none := p.Square(4*30*30, 4*7*7+1); !ok || none {
		t.Error("squares are not told from what is none")
	}
	if _, ok := PlacesAt(0, 7).Square(0, 4*7*7); ok {
		t.Error("a square through nothing")
	}
}

func TestThrough(t *testing.T) {
	p := PlacesAt(2, 5)
	a, b := Contiguous(D(2, 3, 8)), Contiguous(D(5, 3, 8))
	if l, ok := p.Through(9, a, b); !ok || l != Contiguous(D(9, 3, 8)) {
		t.Errorf("%+v, %v", l, ok)
	}
	if _, ok := p.Through(9, a, Contiguous(D(5, 24))); ok {
		t.Error("through layouts of different ranks")
	}
	if _, ok := p.Through(1, Contiguous(D(2, 8)), Contiguous(D(8, 8))); !ok {
		t.Error("no layout of no elements")
	}
	if _, ok := p.Through(0, Contiguous(D(2, 8)), Contiguous(D(8, 8))); ok {
		t.Error("a size below 0")
	}
}
