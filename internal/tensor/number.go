package tensor

import (
	"encoding/binary"
	"math"
)

// Put writes a number as an element of type d, little-endian, at the start of
// to. Numbers are converted as C does; those that an integer type does not hold
// keep their low bits. Types of 16 bits are reached through float32, as in
// PyTorch, and rounded to nearest, ties to even.
func (d DType) Put(to []byte, v float64) {
	switch d {
	case Float64:
		binary.LittleEndian.PutUint64(to, math.Float64bits(v))
	case Float32:
		binary.LittleEndian.PutUint32(to, math.Float32bits(float32(v)))
	case Float16:
		binary.LittleEndian.PutUint16(to, Float16Bits(float32(v)))
	case BFloat16:
		binary.LittleEndian.PutUint16(to, BFloat16Bits(float32(v)))
	case Int64:
		binary.LittleEndian.PutUint64(to, uint64(int64(v)))
	case Int32:
		binary.LittleEndian.PutUint32(to, uint32(int64(v)))
	case Int16:
		binary.LittleEndian.PutUint16(to, uint16(int64(v)))
	case Bool:
		to[0] = 0
		if v != 0 {
			to[0] = 1
		}
	default:
		to[0] = byte(int64(v))
	}
}

// Number reads the element of type d at the start of from.
func (d DType) Number(from []byte) float64 {
	switch d {
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(from))
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(from)))
	case Float16:
		return float64(FromFloat16(binary.LittleEndian.Uint16(from)))
	case BFloat16:
		return float64(FromBFloat16(binary.LittleEndian.Uint16(from)))
	case Int64:
		return float64(int64(binary.LittleEndian.Uint64(from)))
	case Int32:
		return float64(int32(binary.LittleEndian.Uint32(from)))
	case Int16:
		return float64(int16(binary.LittleEndian.Uint16(from)))
	case Int8:
		return float64(int8(from[0]))
	}
	return float64(from[0])
}

// BFloat16Bits rounds to bfloat16 (c10::detail::round_to_nearest_even): the
// upper half of a float32.
func BFloat16Bits(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return 0x7fc0
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBFloat16 is the value of a bfloat16.
func FromBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// Float16Bits rounds to IEEE 754 binary16.
func Float16Bits(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	case abs >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case abs < 0x38800000: // subnormal: in units of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*(1<<24)))
	}
	abs += 0xfff + abs>>13&1
	return sign | uint16((abs-0x38000000)>>13)
}

// FromFloat16 is the value of an IEEE 754 binary16.
func FromFloat16(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // subnormal
		f := float32(frac) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
