package cpu

import (
	"cmp"
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// unordered is the order of a NaN and anything.
const unordered = 2

// order is -1, 0, 1 or unordered.
func order(a, b float64) int {
	if a != a || b != b {
		return unordered
	}
	return cmp.Compare(a, b)
}

// comparison is a row of a comparison of a with b or with a number; holds is
// told their order. Types may differ: whole numbers are compared as such, others
// in float64. A number is one of the type of a.
func comparison(holds func(order int) bool) row {
	return everything(1, true, func(l *launch) error {
		y, a := view[uint8](l, 0), l.call.T[1].DType
		if d := l.call.T[0].DType; d != tensor.Bool {
			return fmt.Errorf("operand y is of type %v, not %v", d, tensor.Bool)
		}
		two := len(l.call.T) > 2
		whole := !a.IsFloating()
		value := 0.0
		if two {
			whole = whole && !l.call.T[2].DType.IsFloating()
		} else {
			value = l.call.F[0]
			whole = whole && value == math.Trunc(value) && math.Abs(value) < 1<<63
			if a.IsFloating() {
				var data [8]byte
				a.Put(data[:], value)
				value = a.Number(data[:])
			}
		}
		l.over().each(func(at []int, n int, step []int) {
			for i := range n {
				o, x := 0, at[1]+i*step[1]
				switch {
				case whole && two:
					o = cmp.Compare(l.integer(1, a, x), l.integer(2, l.call.T[2].DType, at[2]+i*step[2]))
				case whole:
					o = cmp.Compare(l.integer(1, a, x), int64(value))
				case two:
					o = order(l.number(1, x), l.number(2, at[2]+i*step[2]))
				default:
					o = order(l.number(1, x), value)
				}
				y[at[0]+i*step[0]] = 0
				if holds(o) {
					y[at[0]+i*step[0]] = 1
				}
			}
		})
		return nil
	})
}

func equal(o int) bool          { return o == 0 }
func notEqual(o int) bool       { return o != 0 }
func less(o int) bool           { return o == -1 }
func lessOrEqual(o int) bool    { return o == -1 || o == 0 }
func greater(o int) bool        { return o == 1 }
func greaterOrEqual(o int) bool { return o == 1 || o == 0 }

// compareRows give masks.
var compareRows = map[*kernel.Kernel]row{
	kernel.Eq: comparison(equal), kernel.EqScalar: comparison(equal),
	kernel.Ne: comparison(notEqual), kernel.NeScalar: comparison(notEqual),
	kernel.Lt: comparison(less), kernel.LtScalar: comparison(less),
	kernel.Le: comparison(lessOrEqual), kernel.LeScalar: comparison(lessOrEqual),
	kernel.Gt: comparison(greater), kernel.GtScalar: comparison(greater),
	kernel.Ge: comparison(greaterOrEqual), kernel.GeScalar: comparison(greaterOrEqual),
}

// placeRows depend on where an element is, or on a mask.
var placeRows = map[*kernel.Kernel]row{
	kernel.MaskScale: floats(maskScale[float32], maskScale[float64]),
	kernel.Dropout:   floats(dropout[float32], dropout[float64]),
	kernel.Arange:    everything(0, true, arange),

	kernel.RandomUniform: everything(0, true, random(func(n []float64) func(u float32) float64 {
		from, width := n[0], n[1]-n[0]
		return func(u float32) float64 { return math.FMA(float64(u), width, from) }
	})),
	kernel.RandomBernoulli: everything(0, true, random(func(n []float64) func(u float32) float64 {
		p := n[0]
		return func(u float32) float64 {
			if float64(u) < p {
				return 1
			}
			return 0
		}
	})),
}

func maskScale[T float](l *launch) error {
	y, a, mask, scale := view[T](l, 0), view[T](l, 1), view[uint8](l, 2), T(l.call.F[0])
	l.over().each(func(at []int, n int, step []int) {
		y, a, mask := y[at[0]:], a[at[1]:], mask[at[2]:]
		for i := range n {
			if mask[i*step[2]] != 0 {
				y[i*step[0]] = a[i*step[1]] * scale
			} else {
				y[i*step[0]] = 0
			}
		}
	})
	return nil
}

// dropout draws the words of a block of Philox together where elements follow
// each other.
func dropout[T float](l *launch) error {
	y, mask, a := view[T](l, 0), view[uint8](l, 1), view[T](l, 2)
	seed, p, scale := uint64(l.call.I[0]), float32(l.call.F[0]), T(1/(1-l.call.F[0]))
	l.overPlaces().each(func(at []int, n int, step []int) {
		y, mask, a := y[at[0]:], mask[at[1]:], a[at[2]:]
		draw := stream{seed: seed}
		for i := range n {
			if draw.uniform(int64(at[3]+i*step[3])) >= p {
				mask[i*step[1]], y[i*step[0]] = 1, a[i*step[2]]*scale
			} else {
				mask[i*step[1]], y[i*step[0]] = 0, 0
			}
		}
	})
	return nil
}

// random fills with a function of random numbers; bind gives it for the numbers of a
// call.
func random(bind func(n []float64) func(u float32) float64) runner {
	return func(l *launch) error {
		f, d, seed := bind(l.call.F), l.call.T[0].DType, uint64(l.call.I[0])
		bytes := int(d.Size())
		l.overPlaces().each(func(at []int, n int, step []int) {
			draw := stream{seed: seed}
			for i := range n {
				d.Put(l.data[0][(at[0]+i*step[0])*bytes:], f(draw.uniform(int64(at[1]+i*step[1]))))
			}
		})
		return nil
	}
}

// stream is kernel.Uniform for places that follow each other.
type stream struct {
	seed  uint64
	block int64 // that words are of, plus 1
	words [4]uint32
}

func (s *stream) uniform(i int64) float32 {
	if b := i/4 + 1; b != s.block {
		s.block, s.words = b, kernel.Philox(s.seed, uint64(i)/4)
	}
	return float32(s.words[i%4]>>8) * (1.0 / (1 << 24))
}

func arange(l *launch) error {
	t := &l.call.T[0]
	if t.Size.Len() != 1 {
		return l.wrongRank(0, 1)
	}
	start, step := l.call.F[0], l.call.F[1]
	for i := range t.Numel() {
		v := start + float64(i)*step
		t.DType.Put(l.data[0][i*t.Stride.At(0)*t.DType.Size():], v)
	}
	return nil
}
