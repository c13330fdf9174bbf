package tensor

import (
	"errors"
	"math"
	"testing"
)

func TestBytesString(t *testing.T) {
	for _, c := range []struct {
		b    Bytes
		want string
	}{
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1.00 KiB"},
		{1536, "1.50 KiB"},
		{MiB - 1, "1024.00 KiB"},
		{MiB, "1.00 MiB"},
		{20 * MiB, "20.00 MiB"},
		{GiB, "1.00 GiB"},
		{GiB + GiB/4, "1.25 GiB"},
		{3 * TiB, "3.00 TiB"},
		{MaxBytes, "1.00 PiB"},
		{-512, "-512 B"},
		{-2 * MiB, "-2.00 MiB"},
	} {
		if got := c.b.String(); got != c.want {
			t.Errorf("Bytes(%d) prints %q, want %q", int64(c.b), got, c.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Bytes
	}{
		{"0", 0},
		{"512", 512},
		{"512B", 512},
		{" 512 b ", 512},
		{"1k", 1024},
		{"1KiB", 1024},
		{"1kB", 1000},
		{"1.5 GB", 1_500_000_000},
		{"24GiB", 24 * GiB},
		{"24gib", 24 * GiB},
		{"80g", 80 * GiB},
		{"0.5TiB", TiB / 2},
		{"2TB", 2e12},
		{".5k", 512},
		{"1023.6", 1024},
		{"1024TiB", MaxBytes},
	} {
		got, err := ParseBytes(c.in)
		if err != nil || got != c.want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", c.in, int64(got), err, int64(c.want))
		}
	}
}

func TestParseBytesRefuses(t *testing.T) {
	for _, c := range []struct {
		in       string
		overflow bool
	}{
		{"", false}, {"GiB", false}, {"-1", false}, {"+1", false}, {"1.2.3", false}, {"1 GO", false}, {"1e9", false},
		{"0x10", false}, {"inf", false}, {"NaN", false}, {"1_000", false}, {"24 GiB free", false}, {"٣", false},
		{"1025TiB", true}, {"99999999999999999999999999", true}, {"1125899906842625.9", true},
	} {
		b, err := ParseBytes(c.in)
		if err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", c.in, int64(b))
		} else if errors.Is(err, ErrOverflow) != c.overflow {
			t.Errorf("ParseBytes(%q): %v; is ErrOverflow: want %v", c.in, err, c.overflow)
		}
	}
}

func TestMulBytes(t *testing.T) {
	for _, c := range []struct {
		factors  []int64
		want     Bytes
		overflow bool
	}{
		{nil, 1, false},
		{[]int64{2, 3, 4}, 24, false},
		{[]int64{0, math.MaxInt64, math.MaxInt64}, 0, false},
		{[]int64{math.MaxInt64, math.MaxInt64, 0}, 0, false},
		{[]int64{1 << 25, 1 << 25}, 1 << 50, false},
		{[]int64{1 << 25, 1<<25 + 1}, 0, true},
		{[]int64{1 << 32, 1 << 32}, 0, true},
		{[]int64{math.MaxInt64}, 0, true},
	} {
		got, err := MulBytes(c.factors...)
		if got != c.want || errors.Is(err, ErrOverflow) != c.overflow {
			t.Errorf("MulBytes(%v) = %d, %v; want %d, overflow %v", c.factors, int64(got), err, int64(c.want), c.overflow)
		}
		if n := len(c.factors) - 1; n >= 0 {
			dims, size := D(c.factors[:n]...), c.factors[n]
			if b, err := dims.Bytes(size); b != c.want || errors.Is(err, ErrOverflow) != c.overflow {
				t.Errorf("%v.Bytes(%d) = %d, %v; want %d, overflow %v", dims, size, int64(b), err, int64(c.want), c.overflow)
			}
			if allocs := testing.AllocsPerRun(10, func() { dims.Bytes(size) }); allocs > 0 && !c.overflow {
				t.Errorf("%v.Bytes(%d): %v allocations", dims, size, allocs)
			}
		}
	}
	if _, err := MulBytes(2, -1); err == nil || errors.Is(err, ErrOverflow) {
		t.Errorf("MulBytes(2, -1): %v, want an error about the sign", err)
	}
}

func TestCeilTo(t *testing.T) {
	for _, c := range []struct{ b, unit, want Bytes }{
		{0, 512, 0}, {1, 512, 512}, {512, 512, 512}, {513, 512, 1024}, {20*MiB + 1, 2 * MiB, 22 * MiB},
	} {
		if got := c.b.CeilTo(c.unit); got != c.want {
			t.Errorf("%d to multiples of %d: %d, want %d", c.b, c.unit, got, c.want)
		}
	}
}

// FuzzParseBytes checks that every accepted size is in range and is read again
// as the number of bytes that it stands for.
func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"", "512", "24GiB", "1.5 GB", "80g", ".5k", "1024TiB", "1e9", "-1", "99999999999999999999", "1 GO", "\x00", "٣k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes(s)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("ParseBytes(%q): an error without text", s)
			}
			return
		}
		if b < 0 || b > MaxBytes {
			t.Errorf("ParseBytes(%q) = %d is out of range", s, int64(b))
		}
		if again, err := ParseBytes(plain(b)); err != nil || again != b {
			t.Errorf("%q gives %d, but %q gives %d, %v", s, int64(b), plain(b), int64(again), err)
		}
	})
}

// plain writes a size without a unit.
func plain(b Bytes) string {
	if b == 0 {
		return "0"
	}
	var digits []byte
	for ; b > 0; b /= 10 {
		digits = append([]byte{byte('0' + b%10)}, digits...)
	}
	return string(digits)
}
