package tensor

import (
	"encoding/binary"
	"math"
)

// Encode writes numbers as elements of a type, little-endian. 16-bit floating
// types are rounded to nearest, ties to even.
func Encode(d DType, v []float64) []byte {
	out := make([]byte, int64(len(v))*d.Size())
	for i, x := range v {
		at := out[int64(i)*d.Size():]
		switch d {
		case Float32:
			binary.LittleEndian.PutUint32(at, math.Float32bits(float32(x)))
		case Float64:
			binary.LittleEndian.PutUint64(at, math.Float64bits(x))
		case BFloat16:
			b := math.Float32bits(float32(x))
			binary.LittleEndian.PutUint16(at, uint16((b+0x7fff+b>>16&1)>>16))
		case Float16:
			binary.LittleEndian.PutUint16(at, half(float32(x)))
		case Int64:
			binary.LittleEndian.PutUint64(at, uint64(int64(x)))
		case Int32:
			binary.LittleEndian.PutUint32(at, uint32(int32(x)))
		case Int16:
			binary.LittleEndian.PutUint16(at, uint16(int16(x)))
		default:
			at[0] = byte(int64(x))
		}
	}
	return out
}

// Decode reads elements of a type as numbers.
func Decode(d DType, data []byte) []float64 {
	out := make([]float64, int64(len(data))/d.Size())
	for i := range out {
		at := data[int64(i)*d.Size():]
		switch d {
		case Float32:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(at)))
		case Float64:
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(at))
		case BFloat16:
			out[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(at)) << 16))
		case Float16:
			out[i] = float64(unhalf(binary.LittleEndian.Uint16(at)))
		case Int64:
			out[i] = float64(int64(binary.LittleEndian.Uint64(at)))
		case Int32:
			out[i] = float64(int32(binary.LittleEndian.Uint32(at)))
		case Int16:
			out[i] = float64(int16(binary.LittleEndian.Uint16(at)))
		case Int8:
			out[i] = float64(int8(at[0]))
		default:
			out[i] = float64(at[0])
		}
	}
	return out
}

// half is a float32 as IEEE 754 binary16.
func half(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	abs := b & 0x7fffffff
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

func unhalf(h uint16) float32 {
	sign, exp, frac := float32(1), h>>10&0x1f, float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * float32(frac/(1<<24))
	case 31:
		if frac != 0 {
			return float32(math.NaN())
		}
		return sign * float32(math.Inf(1))
	}
	return sign * float32(math.Ldexp(1+frac/1024, int(exp)-15))
}
