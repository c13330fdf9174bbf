package tensor

import (
	"math"
	"testing"
)

func TestNormDim(t *testing.T) {
	for _, c := range []struct {
		dim, rank, want int
		ok              bool
	}{
		{0, 3, 0, true}, {2, 3, 2, true}, {-1, 3, 2, true}, {-3, 3, 0, true}, {3, 3, 0, false}, {-4, 3, 0, false},
		{0, 0, 0, true}, {-1, 0, 0, true}, {1, 0, 0, false}, {math.MinInt, 3, 0, false},
	} {
		got, err := NormDim(c.dim, c.rank)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("NormDim(%d, %d) = %d, %v; want %d, %v", c.dim, c.rank, got, err, c.want, c.ok)
		}
	}
}

func TestReshapeSizes(t *testing.T) {
	for _, c := range []struct {
		numel  int64
		wanted []int64
		want   string // "": refused
	}{
		{12, []int64{3, 4}, "[3, 4]"},
		{12, []int64{-1, 4}, "[3, 4]"},
		{12, []int64{12, -1}, "[12, 1]"},
		{1, nil, "[]"},
		{0, []int64{0, 5}, "[0, 5]"},
		{0, []int64{-1, 5}, "[0, 5]"},
		{0, []int64{-1, 0}, ""}, // the hole could be anything
		{12, []int64{5, -1}, ""},
		{12, []int64{5}, ""},
		{12, nil, ""},
		{12, []int64{-1, -1}, ""},
		{12, []int64{-2, 6}, ""},
		{12, []int64{1 << 32, 1 << 32}, ""},         // the product wraps around to 0
		{12, []int64{math.MaxInt64, 2, -1}, ""},     // and to a small number
		{0, []int64{1 << 32, 1 << 32, 1}, ""},       // which must not pass for 0 elements
		{1, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1}, ""}, // too many dimensions
	} {
		d, err := ReshapeSizes(c.numel, c.wanted)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%d elements as %v: %v, want an error", c.numel, c.wanted, d)
		case c.want != "" && (err != nil || d.String() != c.want):
			t.Errorf("%d elements as %v: %v, %v; want %s", c.numel, c.wanted, d, err, c.want)
		}
	}
}

// TestView has cases of at::detail::computeStride.
func TestView(t *testing.T) {
	base := Contiguous(D(2, 3, 4))
	transposed := base.Transpose(1, 2)
	narrow := base.Narrow(1, 0, 2, 1)
	one := Contiguous(D(2, 1, 4))
	odd := one.Transpose(0, 1)
	for _, c := range []struct {
		name string
		l    Layout
		size Dims
		want string // "": takes a copy
	}{
		{"merge all", base, D(24), "[24] [1] 0"},
		{"split", base, D(2, 3, 2, 2), "[2, 3, 2, 2] [12, 4, 2, 1] 0"},
		{"ones anywhere", base, D(1, 6, 1, 4), "[1, 6, 1, 4] [24, 4, 4, 1] 0"},
		{"same", transposed, D(2, 4, 3), "[2, 4, 3] [12, 1, 4] 0"},
		{"merge over a transposition", transposed, D(2, 12), ""},
		{"split a transposed dimension", transposed, D(2, 2, 2, 3), "[2, 2, 2, 3] [12, 2, 1, 4] 0"},
		{"merge inside of a narrowed one", narrow, D(2, 8), "[2, 8] [12, 1] 0"},
		{"merge across a gap", narrow, D(16), ""},
		{"size 1 moves", odd, D(8), "[8] [1] 0"},
		{"scalar", Contiguous(D()), D(1, 1), "[1, 1] [1, 1] 0"},
		{"empty", Contiguous(D(2, 0)), D(0, 7), "[0, 7] [7, 1] 0"},
	} {
		got, ok := c.l.View(c.size)
		if ok != (c.want != "") || (ok && text(got) != c.want) {
			t.Errorf("%s: %s, %v; want %q", c.name, text(got), ok, c.want)
		}
	}
}

func TestExpand(t *testing.T) {
	l := Contiguous(D(3, 1))
	for _, c := range []struct {
		wanted []int64
		want   string // "": refused
	}{
		{[]int64{3, 4}, "[3, 4] [1, 0] 0"},
		{[]int64{-1, 4}, "[3, 4] [1, 0] 0"},
		{[]int64{2, -1, -1}, "[2, 3, 1] [0, 1, 1] 0"},
		{[]int64{3, 0}, "[3, 0] [1, 0] 0"},
		{[]int64{4, 1}, ""},
		{[]int64{3}, ""},
		{[]int64{-1, 3, 1}, ""},
		{[]int64{3, -2}, ""},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 3, 1}, ""},
	} {
		got, err := l.Expand(c.wanted)
		if (err == nil) != (c.want != "") || (err == nil && text(got) != c.want) {
			t.Errorf("%v: %s, %v; want %q", c.wanted, text(got), err, c.want)
		}
	}
}
