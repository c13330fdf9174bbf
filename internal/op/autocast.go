package op

import "github.com/memplan/memplan/internal/tensor"

// Casts reports whether autocast, which is enabled or not, has a policy for the operator.
func (r *Op) Casts(e *Env) bool {
	return e.Autocast && r.Cast != CastNone && (r.CastSince == nil || e.Torch.Has(r.CastSince))
}

// AutocastType returns the type to which autocast converts the operator's
// floating inputs, and whether it does at all (aten/src/ATen/autocast_mode.h).
func (r *Op) AutocastType(lower tensor.DType, in []*Tensor) (tensor.DType, bool) {
	switch r.Cast {
	case CastLower:
		return lower, true
	case CastFP32:
		return tensor.Float32, true
	case CastHalf:
		return tensor.Float16, true
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

// RefuseAutocast fails for an operator that PyTorch refuses under autocast.
func (r *Op) RefuseAutocast(e Exec) {
	if r.Cast == CastForbidden {
		e.Fail("%s does not work under autocast, PyTorch says; use its form with logits", r.Name)
	}
}

// refusal names an operator, the type of an input and that of autocast.
const refusal = "%s does not take %v under autocast to %v, PyTorch says; convert it first"

// autocastRefuses returns the first input with which an operator that promotes
// its inputs does not work under autocast: one of the other 16-bit type, such as
// the float16 that cuDNN's RNN returns under autocast to bfloat16, unless a
// float32 comes before it (at::autocast::prioritize). It returns nil if there is
// none.
func (r *Op) autocastRefuses(lower tensor.DType, in []*Tensor) *Tensor {
	if r.Cast != CastPromote {
		return nil
	}
	for _, t := range in {
		switch {
		case !Autocasts(t) || t.DType == lower:
		case t.DType == tensor.Float32:
			return nil
		default:
			return t
		}
	}
	return nil
}

// CastOrder lists the n inputs in the order in which autocast converts them:
// from the last to the first, as GCC evaluates the arguments of a call, but the
// items of a list from its first on.
func (r *Op) CastOrder(n int) []int {
	low, high := r.CastList[0], min(r.CastList[1], n)
	order := make([]int, n)
	for k := range order {
		i := n - 1 - k
		if i >= low && i < high {
			i = low + high - 1 - i
		}
		order[k] = i
	}
	return order
}

// Autocasts reports whether autocast touches a tensor at all: floating types
// but double.
func Autocasts(t *Tensor) bool {
	return t != nil && t.DType.IsFloating() && t.DType != tensor.Float64
}

// Typed are arguments that may set the type of a result.
type Typed interface {
	// OrType are the arguments that set d if these set none.
	OrType(d tensor.DType) any
}

// AutocastArgs returns the arguments with which an operator of the policy
// fp32_set_opt_dtype runs: the result is float32 unless they set a type.
func (r *Op) AutocastArgs(args any, in []*Tensor) any {
	if r.Cast != CastFP32Out || len(in) == 0 || !Autocasts(in[0]) {
		return args
	}
	if a, is := args.(Typed); is {
		return a.OrType(tensor.Float32)
	}
	return args
}
