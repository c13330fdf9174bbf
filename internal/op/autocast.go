package op

import "github.com/memplan/memplan/internal/tensor"

// AutocastType returns the type to which autocast converts the operator's
// floating inputs, and whether it does at all (aten/src/ATen/autocast_mode.h).
func (r *Row) AutocastType(lower tensor.DType, in []*Tensor) (tensor.DType, bool) {
	switch r.Cast {
	case CastLower:
		return lower, true
	case CastFP32:
		return tensor.Float32, true
	case CastPromote: // the widest of the inputs, lower if there is nothing wider
		for _, t := range in {
			if Autocasts(t) && t.DType == tensor.Float32 {
				return tensor.Float32, true
			}
		}
		return lower, true
	}
	return 0, false
}

// Autocasts reports whether autocast touches a tensor at all: floating types
// but double.
func Autocasts(t *Tensor) bool {
	return t != nil && t.DType.IsFloating() && t.DType != tensor.Float64
}

// AutocastArgs returns the arguments with which an operator of the policy
// fp32_set_opt_dtype runs: the result is float32 unless they set a type.
func (r *Row) AutocastArgs(args any, in []*Tensor) any {
	if r.Cast != CastFP32Out || len(in) == 0 || !Autocasts(in[0]) {
		return args
	}
	d := tensor.Float32
	switch a := args.(type) {
	case *SoftmaxArgs:
		if a.DType == nil {
			b := *a
			b.DType = &d
			return &b
		}
	case *ReduceArgs:
		if a.DType == nil {
			b := *a
			b.DType = &d
			return &b
		}
	case *CumsumArgs:
		if a.DType == nil {
			b := *a
			b.DType = &d
			return &b
		}
	}
	return args
}
