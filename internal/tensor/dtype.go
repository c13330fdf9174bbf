package tensor

import (
	"fmt"
	"math"
)

// DType is an element type of a tensor, named as in torch.
type DType uint8

// The element types, in PyTorch's order of c10::ScalarType.
const (
	Uint8 DType = iota
	Int8
	Int16
	Int32
	Int64
	Float16
	Float32
	Float64
	Bool
	BFloat16
	numDTypes
)

// dtypes is the table of element types: name in torch, size in bytes, and
// whether it is floating point.
var dtypes = [numDTypes]struct {
	name     string
	size     int64
	floating bool
}{
	Uint8:    {"uint8", 1, false},
	Int8:     {"int8", 1, false},
	Int16:    {"int16", 2, false},
	Int32:    {"int32", 4, false},
	Int64:    {"int64", 8, false},
	Float16:  {"float16", 2, true},
	Float32:  {"float32", 4, true},
	Float64:  {"float64", 8, true},
	Bool:     {"bool", 1, false},
	BFloat16: {"bfloat16", 2, true},
}

// dtypeAliases are the second names that torch gives some element types.
var dtypeAliases = map[string]DType{
	"half": Float16, "fp16": Float16, "bf16": BFloat16, "float": Float32, "fp32": Float32,
	"double": Float64, "fp64": Float64, "long": Int64, "int": Int32, "short": Int16,
}

// String returns torch's name without the "torch." prefix.
func (d DType) String() string { return dtypes[d].name }

// Size is the number of bytes of one element.
func (d DType) Size() int64 { return dtypes[d].size }

// IsFloating reports whether d is a floating-point type.
func (d DType) IsFloating() bool { return dtypes[d].floating }

// IsHalf reports whether d is one of the two 16-bit floating-point types.
func (d DType) IsHalf() bool { return d == Float16 || d == BFloat16 }

// Accumulate is the type in which CUDA kernels accumulate d (at::acc_type):
// float32 for the 16-bit types, the type itself for other floating types.
func (d DType) Accumulate() DType {
	if d.IsHalf() {
		return Float32
	}
	return d
}

// Epsilon is the distance from 1 to the next number of a floating type; 0 of
// others.
func (d DType) Epsilon() float64 {
	switch d {
	case Float64:
		return 0x1p-52
	case Float32:
		return 0x1p-23
	case Float16:
		return 0x1p-10
	case BFloat16:
		return 0x1p-7
	}
	return 0
}

// Largest is the largest finite number of a type.
func (d DType) Largest() float64 {
	switch d {
	case Float64:
		return math.MaxFloat64
	case Float32:
		return math.MaxFloat32
	case BFloat16:
		return 0x1.fep127
	case Float16:
		return 65504
	case Int64:
		return math.MaxInt64
	case Int32:
		return math.MaxInt32
	case Int16:
		return math.MaxInt16
	case Int8:
		return math.MaxInt8
	case Uint8:
		return math.MaxUint8
	}
	return 1
}

// ParseDType reads torch's name of an element type, with or without the
// "torch." prefix, or one of its aliases (half, bf16, long, ...).
func ParseDType(s string) (DType, error) {
	if len(s) > 6 && s[:6] == "torch." {
		s = s[6:]
	}
	for i := range dtypes {
		if dtypes[i].name == s {
			return DType(i), nil
		}
	}
	if d, ok := dtypeAliases[s]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("unknown dtype %q", s)
}

// DTypeNames lists torch's names of all element types, in table order.
func DTypeNames() []string {
	names := make([]string, numDTypes)
	for i := range dtypes {
		names[i] = dtypes[i].name
	}
	return names
}

// Promote returns the element type of an elementwise result of two tensors of
// at least one dimension each (c10::promoteTypes, for the types in the table).
func Promote(a, b DType) DType {
	switch {
	case a == b:
		return a
	case a == Bool:
		return b
	case b == Bool:
		return a
	case a.IsFloating() && !b.IsFloating():
		return a
	case b.IsFloating() && !a.IsFloating():
		return b
	case a.IsFloating(): // both floating and different
		if a.IsHalf() && b.IsHalf() {
			return Float32
		}
		if a.Size() > b.Size() {
			return a
		}
		return b
	case a == Uint8 || b == Uint8: // with a signed type
		o := a
		if a == Uint8 {
			o = b
		}
		if o == Int8 {
			return Int16
		}
		return o
	case a.Size() > b.Size():
		return a
	}
	return b
}
