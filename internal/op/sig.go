package op

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/tensor"
)

// ParamKind is what a parameter of an operator or layer accepts.
type ParamKind uint8

// The kinds. The comment is how a Sig spells it.
const (
	KTensor  ParamKind = iota // "tensor" (the default), "tensor?"
	KTensors                  // "tensors": a list of tensors
	KOperand                  // "operand": a tensor or a number
	KInt                      // "int", "int?"
	KInts                     // "ints", "ints?": a list, or one number for a list of one
	KSizes                    // "sizes": one number or a list, which mean different things
	KPair                     // "pair", "pair?": as ints; one number stands for every spatial dimension
	KFloat                    // "float", "float?"
	KFloats                   // "floats": a list of numbers
	KNumber                   // "number", "number?": an integer or a float, which decides on the type of the result
	KBool                     // "bool"
	KStr                      // "str(a|b|c)", "str"
	KDType                    // "dtype", "dtype?"
	KFormat                   // "format(a|b|c)": a memory format
	numKinds
)

var kindNames = [numKinds]string{
	KTensor: "tensor", KTensors: "tensors", KOperand: "operand", KInt: "int", KInts: "ints", KSizes: "sizes", KPair: "pair",
	KFloat: "float", KFloats: "floats", KNumber: "number", KBool: "bool", KStr: "str", KDType: "dtype", KFormat: "format",
}

// kindHelp says in error messages what a kind accepts.
var kindHelp = [numKinds]string{
	KTensor: "the name of a value", KTensors: "a list of names of values", KOperand: "the name of a value or a number",
	KInt: "an integer", KInts: "an integer or a list of integers", KSizes: "an integer or a list of integers", KPair: "an integer or a list of integers",
	KFloat: "a number", KFloats: "a list of numbers", KNumber: "a number", KBool: "true or false", KStr: "a string", KDType: "a dtype such as float32 or bfloat16",
	KFormat: "a memory format",
}

// Param is one parameter of a signature.
type Param struct {
	Name     string
	Kind     ParamKind
	Optional bool     // None is allowed
	Required bool     // there is no default
	Infer    bool     // computed from the input; checked if given
	Star     bool     // printed as *args
	KwOnly   bool     // printed by keyword
	Default  any      // int64, float64, bool, string, nil or []int64
	Choices  []string // of a string
}

// Sig is a parsed signature.
type Sig struct {
	Python string // how Python writes the callee: "F.gelu", "torch.cat", "Tensor.view", "nn.Linear", or an operator sign
	Key    string // how a spec writes it: the last part of Python, or the row's own name
	Params []Param
}

// ParseSig reads a signature such as
//
//	F.softmax(input, dim: int, dtype: dtype? = None)
//	Tensor.view(self, *shape: ints)
//	nn.Linear(in_features: infer int, out_features: int, bias: bool = True)
//	+ add(input, other: operand)
//
// A lone "*" starts the keyword-only parameters, as in Python.
func ParseSig(s string) (*Sig, error) {
	open, closing := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || closing != len(s)-1 {
		return nil, fmt.Errorf("signature %q lacks parentheses", s)
	}
	sig := &Sig{Python: s[:open]}
	if sign, name, ok := strings.Cut(sig.Python, " "); ok { // an operator sign and the name that specs use
		sig.Python, sig.Key = sign, name
	} else {
		sig.Key = sig.Python[strings.LastIndexByte(sig.Python, '.')+1:]
	}
	kwOnly := false
	for _, part := range splitTop(s[open+1 : closing]) {
		if part == "*" {
			kwOnly = true
			continue
		}
		p, err := parseParam(part)
		if err != nil {
			return nil, fmt.Errorf("signature %q: %w", s, err)
		}
		p.KwOnly = kwOnly
		sig.Params = append(sig.Params, p)
	}
	return sig, nil
}

// splitTop splits at commas outside of parentheses and brackets.
func splitTop(s string) []string {
	var parts []string
	depth, start := 0, 0
	for i, r := range s {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	if last := strings.TrimSpace(s[start:]); last != "" {
		parts = append(parts, last)
	}
	return parts
}

func parseParam(s string) (Param, error) {
	decl, def, hasDefault := strings.Cut(s, "=")
	name, kind, typed := strings.Cut(decl, ":")
	p := Param{Name: strings.TrimSpace(name), Required: !hasDefault}
	if strings.HasPrefix(p.Name, "*") {
		p.Name, p.Star = p.Name[1:], true
	}
	kind = strings.TrimSpace(kind)
	if !typed {
		kind = "tensor"
	}
	if k, ok := strings.CutPrefix(kind, "infer "); ok {
		kind, p.Infer, p.Required = k, true, false
	}
	if k, ok := strings.CutSuffix(kind, "?"); ok {
		kind, p.Optional = k, true
	}
	if k, choices, ok := strings.Cut(kind, "("); ok {
		kind, p.Choices = k, strings.Split(strings.TrimSuffix(choices, ")"), "|")
	}
	found := false
	for i, n := range kindNames {
		if n == kind {
			p.Kind, found = ParamKind(i), true
		}
	}
	if !found {
		return p, fmt.Errorf("parameter %q has unknown kind %q", p.Name, kind)
	}
	if hasDefault {
		v, err := parseDefault(strings.TrimSpace(def))
		if err != nil {
			return p, fmt.Errorf("parameter %q: %w", p.Name, err)
		}
		p.Default = v
	}
	return p, nil
}

// parseDefault reads a Python literal.
func parseDefault(s string) (any, error) {
	switch {
	case s == "None":
		return nil, nil
	case s == "True" || s == "False":
		return s == "True", nil
	case len(s) > 1 && (s[0] == '\'' || s[0] == '"'):
		return s[1 : len(s)-1], nil
	case len(s) > 1 && s[0] == '(':
		var list []any
		for _, part := range splitTop(s[1 : len(s)-1]) {
			v, err := parseDefault(part)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("default %q is no literal", s)
	}
	return f, nil
}

// Find returns the parameter of that name, or nil.
func (s *Sig) Find(name string) *Param {
	for i := range s.Params {
		if s.Params[i].Name == name {
			return &s.Params[i]
		}
	}
	return nil
}

// IsTensor reports whether the parameter may take tensors.
func (p *Param) IsTensor() bool { return p.Kind <= KOperand }

// Check converts a value of a spec (int64, float64, bool, string, nil or
// []any of these) to the parameter's kind, or says what is allowed. Tensor
// kinds are the caller's business, except for the number of an operand.
func (p *Param) Check(v any) (any, error) {
	if v == nil {
		if p.Optional || (!p.Required && p.Default == nil) {
			return nil, nil
		}
		return nil, fmt.Errorf("%s must be %s, not null", p.Name, p.help())
	}
	bad := func() error {
		return fmt.Errorf("%s must be %s, not %s", p.Name, p.help(), describe(v))
	}
	switch p.Kind {
	case KInt:
		if i, ok := v.(int64); ok {
			return i, p.inRange(i)
		}
	case KInts, KSizes, KPair:
		if i, ok := v.(int64); ok {
			if p.Kind == KSizes {
				return i, p.inRange(i)
			}
			return []int64{i}, p.inRange(i)
		}
		if list, ok := v.([]any); ok {
			out := make([]int64, len(list))
			for k, e := range list {
				i, ok := e.(int64)
				if f, isFloat := e.(float64); isFloat {
					return nil, fmt.Errorf("%s must be %s, but item %d is %v, a floating-point number (/ makes one; // divides integers)", p.Name, p.help(), k+1, f)
				}
				if !ok {
					return nil, bad()
				}
				if err := p.inRange(i); err != nil {
					return nil, err
				}
				out[k] = i
			}
			return out, nil
		}
	case KFloat:
		switch n := v.(type) {
		case float64:
			return n, nil
		case int64:
			return float64(n), nil
		}
	case KFloats:
		if list, ok := v.([]any); ok {
			out := make([]float64, len(list))
			for k, e := range list {
				switch n := e.(type) {
				case float64:
					out[k] = n
				case int64:
					out[k] = float64(n)
				default:
					return nil, bad()
				}
			}
			return out, nil
		}
	case KOperand:
		switch v.(type) {
		case float64, int64, bool:
			return v, nil
		}
	case KNumber:
		switch n := v.(type) {
		case float64:
			return n, nil
		case int64:
			return n, p.inRange(n)
		}
	case KBool:
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case KStr:
		s, ok := v.(string)
		if i, isInt := v.(int64); isInt { // getitem: 0
			s, ok = strconv.FormatInt(i, 10), true
		}
		if ok && len(p.Choices) == 0 {
			return s, nil
		}
		for _, c := range p.Choices {
			if ok && s == c {
				return s, nil
			}
		}
	case KDType:
		if s, ok := v.(string); ok {
			d, err := tensor.ParseDType(s)
			if err == nil {
				return d, nil
			}
		}
	case KFormat:
		s, _ := v.(string)
		for _, c := range p.Choices {
			if strings.TrimPrefix(s, "torch.") == c {
				return tensor.MemoryFormat(c), nil
			}
		}
	}
	// "same" and the like are strings where numbers stand otherwise.
	if s, ok := v.(string); ok && p.Kind == KPair {
		for _, c := range p.Choices {
			if s == c {
				return s, nil
			}
		}
	}
	return nil, bad()
}

// The largest integers that arguments take: sizes as tensors can have them, and
// for the geometry of windows (whose numbers are multiplied with each other)
// what fits 31 bits. Sums and products of them fit 64 bits.
const (
	MaxSize     = tensor.MaxBytes
	MaxGeometry = 1<<31 - 1
)

// inRange checks an integer.
func (p *Param) inRange(i int64) error {
	most := int64(MaxSize)
	if p.Kind == KPair {
		most = MaxGeometry
	}
	if i < -most || i > most {
		return fmt.Errorf("%s must be at most %d in magnitude, not %d", p.Name, most, i)
	}
	return nil
}

func (p *Param) help() string {
	h := kindHelp[p.Kind]
	if (p.Kind == KStr || p.Kind == KFormat) && len(p.Choices) > 0 {
		h = "one of " + strings.Join(p.Choices, ", ")
	} else if len(p.Choices) > 0 {
		h += " or one of " + strings.Join(p.Choices, ", ")
	}
	if p.Optional {
		h += " or null"
	}
	return h
}

func describe(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return fmt.Sprintf("the list %v", v)
	}
	return fmt.Sprint(v)
}

// argField is a field of an argument struct.
type argField struct {
	name  string // its `arg` tag
	index []int
}

// argFields are those of the structs that were bound, by type.
var argFields sync.Map

func argFieldsOf(t reflect.Type) []argField {
	if fields, ok := argFields.Load(t); ok {
		return fields.([]argField)
	}
	var fields []argField
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := f.Tag.Lookup("arg"); ok {
			fields = append(fields, argField{name, f.Index})
		}
	}
	argFields.Store(t, fields)
	return fields
}

// BindArgs returns a new struct of the type that zero points to, with the
// fields that vals names by their `arg` tags. Values have the types that Check
// returns. It panics if a field cannot take its value, which a test over all
// rows excludes.
func BindArgs(zero any, vals map[string]any) any {
	if zero == nil {
		return nil
	}
	t := reflect.TypeOf(zero).Elem()
	s := reflect.New(t)
	for _, field := range argFieldsOf(t) {
		v, ok := vals[field.name]
		if !ok || v == nil {
			continue
		}
		f, rv := s.Elem().FieldByIndex(field.index), reflect.ValueOf(v)
		switch {
		case rv.Type().AssignableTo(f.Type()):
			f.Set(rv)
		case f.Kind() == reflect.Pointer && rv.Type().AssignableTo(f.Type().Elem()):
			p := reflect.New(f.Type().Elem())
			p.Elem().Set(rv)
			f.Set(p)
		case f.Kind() == reflect.Pointer && rv.CanConvert(f.Type().Elem()):
			p := reflect.New(f.Type().Elem())
			p.Elem().Set(rv.Convert(f.Type().Elem()))
			f.Set(p)
		case f.Type() == reflect.TypeFor[Number]():
			f.Set(reflect.ValueOf(numberOf(v)))
		default:
			f.Set(rv.Convert(f.Type()))
		}
	}
	return s.Interface()
}

// Number is a Python scalar operand.
type Number struct {
	Set   bool // false: the operand is a tensor
	Float bool // a Python float rather than an int or bool
	Bool  bool
	Value float64
}

func numberOf(v any) Number {
	switch n := v.(type) {
	case float64:
		return Number{Set: true, Float: true, Value: n}
	case int64:
		return Number{Set: true, Value: float64(n)}
	case bool:
		x := Number{Set: true, Bool: true}
		if n {
			x.Value = 1
		}
		return x
	}
	return Number{}
}
