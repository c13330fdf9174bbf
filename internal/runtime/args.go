package runtime

import (
	"reflect"

	"github.com/memplan/memplan/internal/op"
)

// arg returns the argument of a row that its struct has under a tag; nil if it
// has none.
func arg(args any, name string) any {
	v := reflect.ValueOf(args)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil
	}
	v = v.Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Tag.Get("arg") == name {
			return v.FieldByIndex(f.Index).Interface()
		}
	}
	return nil
}

// number is an argument that is a number, 0 if there is none; of an operand that
// may be a tensor, whether it is a number.
func number(args any, name string) (v float64, set bool) {
	switch a := arg(args, name).(type) {
	case float64:
		return a, true
	case int64:
		return float64(a), true
	case *float64:
		if a != nil {
			return *a, true
		}
	case op.Number:
		return a.Value, a.Set
	}
	return 0, false
}
