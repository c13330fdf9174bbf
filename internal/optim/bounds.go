package optim

import (
	"errors"
	"fmt"
)

// bound is the range of an argument; outside of it the constructor raises a
// ValueError.
type bound struct {
	arg  string
	ok   func(x float64) bool
	want string
	n    int // how many numbers a list has; 0: the argument is one number
}

// nonNegative is "0.0 <= x".
func nonNegative(arg string) bound {
	return bound{arg: arg, ok: func(x float64) bool { return x >= 0 }, want: "at least 0"}
}

// pair is a list of two numbers in [0, 1), as betas are.
func pair(arg string) bound {
	return bound{arg: arg, n: 2, ok: func(x float64) bool { return x >= 0 && x < 1 }, want: "at least 0 and less than 1"}
}

var betas = pair("betas")

// unit is "0.0 <= x <= 1.0".
func unit(arg string) bound {
	return bound{arg: arg, ok: func(x float64) bool { return x >= 0 && x <= 1 }, want: "from 0 to 1"}
}

// errNesterov is what SGD's constructor says.
var errNesterov = errors.New("nesterov needs a momentum above 0 and no dampening")

// Range reports whether the constructor refuses a value of an argument, as
// op.Param.Check returns it.
func (r *Row) Range(arg string, v any) error {
	for _, b := range r.Bounds {
		if b.arg == arg && v != nil {
			return b.check(v)
		}
	}
	return nil
}

func (b *bound) check(v any) error {
	switch x := v.(type) {
	case float64:
		return b.number(b.arg, x)
	case int64:
		return b.number(b.arg, float64(x))
	case []float64:
		if len(x) != b.n {
			return fmt.Errorf("%s are %d numbers, not %d", b.arg, b.n, len(x))
		}
		for i, n := range x {
			if err := b.number(fmt.Sprintf("%s[%d]", b.arg, i), n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bound) number(name string, x float64) error {
	if b.ok(x) {
		return nil
	}
	return fmt.Errorf("%s must be %s, not %v", name, b.want, x)
}
