package spec

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// Arguments are those that a spec gives a trainer, by the trainer's table.
type Arguments struct {
	At      Span
	Table   *trainer.Table
	Release string // of transformers
	given   map[string]*Value
	values  map[string]any
}

// read decodes a mapping by a table.
func (a *Arguments) read(d *decoder, v *Value, t *trainer.Table) {
	a.At, a.Table, a.given, a.values = v.Span, t, map[string]*Value{}, map[string]any{}
	a.Release = d.release
	if v.Kind != Map {
		d.errs.Addf(v.Span, "the arguments of %s are a mapping, not %s; {} is the defaults", t.Name, v.Describe())
		return
	}
	a.section(d, v, "")
}

// section decodes the arguments of a mapping, whose names begin with a prefix: keys of
// the mapping NAME in it are arguments NAME.KEY.
func (a *Arguments) section(d *decoder, v *Value, prefix string) {
	t := a.Table
	for _, p := range v.Pairs {
		name := prefix + p.Key.Str
		row := t.Find(name, a.Release)
		if row == nil {
			switch {
			case p.Value.Kind == Map && t.HasSection(name):
				a.section(d, p.Value, name+".")
			case p.Value.Kind == Null && t.HasSection(name):
			case t.HasSection(name):
				d.errs.Addf(p.Value.Span, "%s is a mapping of arguments of %s, not %s", name, t.Name, p.Value.Describe())
			case t.Find(name, "") != nil || t.Find(name, trainer.Old) != nil:
				d.errs.Addf(p.Key.Span, "%s of transformers %s has no argument %q; another release has it (model.with.transformers)", t.Name, a.releaseName(), name)
			default:
				d.errs.Unknown(p.Key.Span, "argument of "+t.Name, name, t.Names(a.Release))
			}
			continue
		}
		if a.given[name] != nil {
			d.errs.Addf(p.Key.Span, "%s is given twice", name)
			continue
		}
		if p.Value.Kind == Null && (row.Default == nil || row.Null) {
			a.values[name] = nil
			continue
		}
		if x, ok := a.value(d, row, name, p.Value); ok {
			a.given[name], a.values[name] = p.Value, x
		}
	}
}

// undecoded is the value of an integer SECTION.KEY of arguments that are not decoded, or its
// default; 0 if it is none.
func undecoded(t *trainer.Table, given *Value, name string) int64 {
	v := given.Get(name)
	if section, last, _ := strings.Cut(name, "."); v == nil {
		v = given.Get(section).Get(last)
	}
	if v != nil {
		return v.Int
	}
	n, _ := t.Find(name, "").Default.(int64)
	return n
}

func (a *Arguments) releaseName() string {
	if a.Release == "" {
		return "5.12"
	}
	return a.Release
}

// forms is what messages call the forms of arguments.
var forms = map[trainer.Form]string{trainer.Int: "an integer", trainer.Number: "a number", trainer.Bool: "true or false", trainer.String: "a string"}

// value reads the value of one argument. Numbers may be strings, as in JSON that
// people write.
func (a *Arguments) value(d *decoder, row *trainer.Argument, what string, v *Value) (any, bool) {
	switch row.Form {
	case trainer.Any:
		return v, v.Kind != Null
	case trainer.Mapping:
		if v.Kind == Str && strings.HasPrefix(v.Str, "{") { // as on a command line
			if m := ofJSON(v); m != nil {
				return m, true
			}
		}
		if v.Kind != Map && v.Kind != Null {
			d.errs.Addf(v.Span, "%s must be a mapping, not %s", what, v.Describe())
			return nil, false
		}
		return v, v.Kind != Null
	case trainer.Strings:
		if v.Kind == Map {
			d.errs.Addf(v.Span, "%s must be a list of strings, not %s", what, v.Describe())
			return nil, false
		}
		return v, v.Kind != Null
	}
	want := forms[row.Form]
	x, ok := d.scalar(v, what, want)
	if !ok {
		return nil, false
	}
	if x == nil {
		if row.Default == nil || row.Null {
			return nil, false
		}
		d.wrong(v, what, want, x)
		return nil, false
	}
	text, isText := x.(string)
	switch row.Form {
	case trainer.Int:
		if n, err := strconv.ParseInt(text, 10, 64); isText && err == nil {
			x = n
		}
		if n, isInt := x.(int64); isInt {
			if n < row.Min {
				d.errs.Addf(d.place(v), "%s must be at least %d, not %d", what, row.Min, n)
				return nil, false
			}
			return n, true
		}
	case trainer.Number:
		if n, err := strconv.ParseFloat(text, 64); isText && err == nil {
			x = n
		}
		if n, isNumber := number(x); isNumber {
			return n, true
		}
	case trainer.Bool:
		if b, isBool := x.(bool); isBool {
			return b, true
		}
	default:
		if isText && (row.Choices == nil || d.enum(String{text, v.Span, true}, what, row.Choices, "")) {
			return text, true
		}
		if isText {
			return nil, false
		}
		if b, isBool := x.(bool); isBool && !b && slices.Contains(row.Choices, "no") { // no is false in YAML 1.1
			return "no", true
		}
	}
	d.wrong(v, what, want, x)
	return nil, false
}

// ofJSON is the mapping that a text of JSON is, at its place; nil if it is none.
func ofJSON(v *Value) *Value {
	var errs Errors
	m := readYAML([]byte(v.Str), &errs)
	if m == nil || m.Kind != Map || len(errs.List) > 0 {
		return nil
	}
	m.place(v.Span)
	return m
}

// place gives a value and all in it a place.
func (v *Value) place(at Span) {
	v.Span = at
	for _, it := range v.Items {
		it.place(at)
	}
	for i := range v.Pairs {
		v.Pairs[i].Key.Span = at
		v.Pairs[i].Value.place(at)
	}
}

// Value is that of an argument, or its default; nil is None.
func (a *Arguments) Value(name string) any {
	if x, ok := a.values[name]; ok {
		return x
	}
	if row := a.Table.Find(name, a.Release); row != nil {
		return row.DefaultIn(a.Release)
	}
	return nil
}

// Span is the place of an argument's value, or that of all.
func (a *Arguments) Span(name string) Span {
	if v := a.given[name]; v != nil {
		return v.Span
	}
	return a.At
}

// Has reports whether an argument is given.
func (a *Arguments) Has(name string) bool { return a.given[name] != nil }

// Int is the value of an integer.
func (a *Arguments) Int(name string) int64 {
	n, _ := a.Value(name).(int64)
	return n
}

// Number is the value of a number.
func (a *Arguments) Number(name string) float64 {
	n, _ := number(a.Value(name))
	return n
}

// Bool is the value of a flag.
func (a *Arguments) Bool(name string) bool {
	b, _ := a.Value(name).(bool)
	return b
}

// Text is the value of a string.
func (a *Arguments) Text(name string) string {
	s, _ := a.Value(name).(string)
	return s
}

// integer is the decoded form of an argument for a section that stands for it.
func (a *Arguments) integer(name string) Integer {
	return Integer{V: a.Int(name), At: a.Span(name), Set: a.Has(name)}
}

func (a *Arguments) boolean(name string) Boolean {
	return Boolean{V: a.Bool(name), At: a.Span(name), Set: a.Has(name)}
}

// every is in every how many steps a trainer does what an argument says. Below 1 it is a
// part of max_steps; 0: that is not given.
func (a *Arguments) every(errs *Errors, name string) int64 {
	n := a.Number(name)
	switch {
	case n <= 0:
		errs.Addf(a.Span(name), "%s must be positive, not %v; 0.1 is a tenth of max_steps, 10 every tenth step", name, n)
		return 0
	case n > MaxEvery:
		errs.Addf(a.Span(name), "%s must be at most %d, not %v", name, int64(MaxEvery), n)
		return 0
	case n > 1 && n != math.Trunc(n):
		errs.Addf(a.Span(name), "%s must be an integer if it is larger than 1, not %v", name, n)
		return 0
	case n < 1:
		return int64(math.Ceil(n * float64(max(a.Int("max_steps"), 0))))
	}
	return int64(n)
}

// releaseOf is the release of transformers that a spec names; "" is the current one.
func releaseOf(root *Value) string {
	v := root.Get("model").Get("with").Get("transformers")
	if v != nil && strings.Trim(v.Str, `"'`) == trainer.Old {
		return trainer.Old
	}
	return ""
}

// Params are the arguments by name, for the loop; None is null, and a.b is a_b.
func (a *Arguments) Params() map[string]any {
	out := map[string]any{}
	for _, name := range a.Table.Names(a.Release) {
		switch x := a.Value(name).(type) {
		case nil, int64, float64, bool, string:
			out[strings.ReplaceAll(name, ".", "_")] = x
		}
	}
	return out
}

// asks reports whether the value of an argument is neither its default nor empty.
func (a *Arguments) asks(row *trainer.Argument) bool {
	x, otherwise := a.Value(row.Name), row.DefaultIn(a.Release)
	if v, ok := x.(*Value); ok {
		switch v.Kind {
		case List:
			return len(v.Items) > 0
		case Map:
			return len(v.Pairs) > 0
		case Bool:
			x = v.Bool
		case Str:
			x = v.Str
		}
	}
	return x != otherwise && x != false && x != nil && x != ""
}

// Unmodelled lists the arguments that ask for what is not modelled.
func (a *Arguments) Unmodelled() []*trainer.Argument {
	var out []*trainer.Argument
	for _, name := range a.Table.Names(a.Release) {
		row := a.Table.Find(name, a.Release)
		if row.Reach == trainer.Unmodelled && a.Has(name) && a.asks(row) {
			out = append(out, row)
		}
	}
	return out
}
