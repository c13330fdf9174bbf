package tensor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory in bytes. It is the only type in which sizes
// cross package boundaries; differences may be negative.
type Bytes int64

// The binary (IEC) units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
	PiB Bytes = 1 << 50
)

// MaxBytes bounds every single size that memplan accepts or computes for one
// tensor (1 PiB). Sums of a program's tensors therefore stay far from
// overflowing int64, so that only products need checking.
const MaxBytes = 1 << 50

// String prints b as PyTorch does in its messages: two decimals in the
// largest binary unit that keeps the number at or above one, and plain bytes
// below 1 KiB.
func (b Bytes) String() string {
	v, sign := float64(b), ""
	if b < 0 {
		v, sign = -v, "-"
	}
	switch {
	case v < float64(KiB):
		return fmt.Sprintf("%s%d B", sign, int64(v))
	case v < float64(MiB):
		return fmt.Sprintf("%s%.2f KiB", sign, v/float64(KiB))
	case v < float64(GiB):
		return fmt.Sprintf("%s%.2f MiB", sign, v/float64(MiB))
	case v < float64(TiB):
		return fmt.Sprintf("%s%.2f GiB", sign, v/float64(GiB))
	case v < float64(PiB):
		return fmt.Sprintf("%s%.2f TiB", sign, v/float64(TiB))
	}
	return fmt.Sprintf("%s%.2f PiB", sign, v/float64(PiB))
}

// CeilTo rounds b up to a multiple of unit; unit must be positive.
func (b Bytes) CeilTo(unit Bytes) Bytes {
	return (b + unit - 1) / unit * unit
}

// DivUp is a/b, rounded up, of what is not negative.
func DivUp(a, b int64) int64 { return (a + b - 1) / b }

// MulBytes returns the product of non-negative factors as a size, or an error
// that wraps ErrOverflow if it exceeds MaxBytes.
func MulBytes(factors ...int64) (Bytes, error) {
	p := int64(1)
	for _, f := range factors {
		if f < 0 {
			return 0, fmt.Errorf("negative factor %d in a size", f)
		}
		if f == 0 {
			return 0, nil
		}
	}
	for _, f := range factors {
		if p > MaxBytes/f {
			return 0, ErrOverflow
		}
		p *= f
	}
	return Bytes(p), nil
}

// AddBytes returns the sum of non-negative sizes, or an error if it exceeds 8
// EiB.
func AddBytes(sizes ...Bytes) (Bytes, error) {
	sum := Bytes(0)
	for _, b := range sizes {
		if b < 0 || b > math.MaxInt64-sum {
			return 0, errors.New("a sum of sizes is more than 8 EiB")
		}
		sum += b
	}
	return sum, nil
}

// byteUnits lists the accepted unit spellings in lower case. A bare letter and
// the IEC forms are binary; kB, MB, GB, TB and PB are decimal, as in SI.
var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"", 1}, {"b", 1},
	{"k", 1 << 10}, {"kib", 1 << 10}, {"kb", 1e3},
	{"m", 1 << 20}, {"mib", 1 << 20}, {"mb", 1e6},
	{"g", 1 << 30}, {"gib", 1 << 30}, {"gb", 1e9},
	{"t", 1 << 40}, {"tib", 1 << 40}, {"tb", 1e12},
	{"p", 1 << 50}, {"pib", 1 << 50}, {"pb", 1e15},
}

// ParseBytes reads a non-negative size such as "512", "24GiB", "1.5 GB" or
// "80g". Units are case-insensitive; see byteUnits for their meaning.
func ParseBytes(s string) (Bytes, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	i := strings.IndexFunc(t, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if i < 0 {
		i = len(t)
	}
	num, unit := t[:i], strings.TrimSpace(t[i:])
	v, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, fmt.Errorf("size %q is not a number with a unit (B, KiB, MiB, GiB, TiB, PiB, kB, MB, GB, TB, PB)", s)
	}
	for _, u := range byteUnits {
		if u.name == unit {
			v *= u.bytes
			if v > MaxBytes {
				return 0, fmt.Errorf("size %q: %w", s, ErrOverflow)
			}
			return Bytes(math.Round(v)), nil
		}
	}
	return 0, fmt.Errorf("size %q has unknown unit %q; allowed are B, KiB, MiB, GiB, TiB, PiB, kB, MB, GB, TB, PB", s, unit)
}
