package spec

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/tensor"
)

// Size is a decoded amount of memory.
type Size struct {
	V  tensor.Bytes
	At Span
}

// decoder fills structs from Values.
type decoder struct {
	errs    *Errors
	env     Env
	root    *Value // of the spec
	kept    bool   // what is below its blocks is kept
	release string // of transformers, whose arguments a trainer takes
}

// unmarshaler is implemented by types with a form of their own.
type unmarshaler interface {
	unmarshal(d *decoder, v *Value)
}

// section fills the struct that out points to from a mapping.
func (d *decoder) section(v *Value, out any, what string) {
	rv := reflect.ValueOf(out).Elem()
	d.defaults(rv)
	if v == nil || v.Kind == Null {
		return
	}
	if v.Kind != Map {
		d.errs.Addf(v.Span, "%s must be a mapping, not %s", what, v.Describe())
		return
	}
	fields := fieldsOf(rv.Type())
	d.canonicalKeys(v, fields)
	for _, p := range v.Pairs {
		read := func() {
			if !d.errs.otherName(p.Key.Span, p.Key.Str) {
				d.errs.Unknown(p.Key.Span, "key", p.Key.Str, fields.names)
			}
		}
		meant, known := fields.index[p.Key.Str]
		if known {
			read = func() { d.field(rv.FieldByIndex(meant), rv.Type().FieldByIndex(meant).Tag, p.Key, p.Value) }
		} else if rv.Type() == reflect.TypeFor[Spec]() && !d.errs.Full() {
			meant = fields.index[nearest.To(p.Key.Str, fields.names)]
		}
		if meant != nil && rv.Type().FieldByIndex(meant).Tag.Get("alone") != "" {
			d.errs.Contained(read)
		} else {
			read()
		}
	}
}

// defaults sets what `default` tags say.
func (d *decoder) defaults(rv reflect.Value) {
	for _, def := range fieldsOf(rv.Type()).defaults {
		switch s := rv.FieldByIndex(def.index).Addr().Interface().(type) {
		case *String:
			s.V = def.text
		case *Integer:
			s.V, _ = strconv.ParseInt(def.text, 10, 64)
		case *Boolean:
			s.V = def.text == "true"
		case *Number:
			s.V, _ = strconv.ParseFloat(def.text, 64)
		}
	}
}

// fieldDefault is the default of a field.
type fieldDefault struct {
	index []int
	text  string
}

// defaultsOf are the defaults of a struct, with those of structs that are its fields.
func defaultsOf(t reflect.Type) []fieldDefault {
	var out []fieldDefault
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous || (f.Type.Kind() == reflect.Struct && f.Tag.Get("yaml") != "" && f.Tag.Get("yaml") != "-" && !isScalar(f.Type)) {
			for _, def := range defaultsOf(f.Type) {
				out = append(out, fieldDefault{append([]int{i}, def.index...), def.text})
			}
			continue
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			out = append(out, fieldDefault{[]int{i}, text})
		}
	}
	return out
}

func isScalar(t reflect.Type) bool {
	switch reflect.New(t).Interface().(type) {
	case *String, *Integer, *Boolean, *Number:
		return true
	}
	return false
}

// fieldSet lists the keys of a section; those of an embedded struct are among
// them.
type fieldSet struct {
	index map[string][]int
	names []string
	also  map[string]string // second names of keys

	defaults []fieldDefault
}

// fieldSets are those of the sections that were decoded, by type.
var fieldSets sync.Map

func fieldsOf(t reflect.Type) fieldSet {
	if s, ok := fieldSets.Load(t); ok {
		return s.(fieldSet)
	}
	s := fieldSet{index: map[string][]int{}, also: map[string]string{}}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			inner := fieldsOf(f.Type)
			for _, key := range inner.names {
				s.index[key] = append([]int{i}, inner.index[key]...)
			}
			s.names = append(s.names, inner.names...)
			maps.Copy(s.also, inner.also)
		} else if key := f.Tag.Get("yaml"); key != "" && key != "-" {
			s.index[key] = []int{i}
			s.names = append(s.names, key)
			for _, other := range strings.Fields(f.Tag.Get("also")) {
				s.also[other] = key
			}
		}
	}
	s.defaults = defaultsOf(t)
	fieldSets.Store(t, s)
	return s
}

// field fills one field.
func (d *decoder) field(f reflect.Value, tag reflect.StructTag, key, v *Value) {
	what := key.Str
	switch p := f.Addr().Interface().(type) {
	case *String:
		if x, ok := d.scalar(v, what, "a string"); ok {
			s, isStr := x.(string)
			if !isStr && v.expr == nil && (v.Kind == Int || v.Kind == Float) {
				s, isStr = v.Str, true // torch: 2.6, name: 42
			}
			if !isStr {
				d.wrong(v, what, "a string", x)
				return
			}
			x := String{s, v.Span, true}
			if word := canonical(x.V, tag.Get("words")); word != x.V {
				x.V = word
				if v.expr == nil { // what is printed of the spec has one word
					v.Str = word
				}
			}
			if enum := tag.Get("enum"); enum == "" || d.enum(x, what, strings.Split(enum, "|"), tag.Get("means")) {
				*p = x
			}
		}
	case *Integer:
		if x, ok := d.scalar(v, what, "an integer"); ok {
			n, isInt := x.(int64)
			if !isInt {
				d.wrong(v, what, "an integer", x)
				return
			}
			if d.bounds(float64(n), n, v, what, tag) {
				*p = Integer{n, v.Span, true}
			}
		}
	case *Number:
		if x, ok := d.scalar(v, what, "a number"); ok {
			n, isNum := number(x)
			if !isNum {
				d.wrong(v, what, "a number", x)
				return
			}
			if d.bounds(n, n, v, what, tag) {
				*p = Number{n, v.Span, true}
			}
		}
	case *Boolean:
		if x, ok := d.scalar(v, what, "true or false"); ok {
			b, isBool := x.(bool)
			if !isBool {
				d.wrong(v, what, "true or false", x)
				return
			}
			*p = Boolean{b, v.Span, true}
		}
	case **Size:
		if x, ok := d.scalar(v, what, "a size such as 24GiB"); ok {
			n, err := tensor.ParseBytes(pyStr(x))
			if err != nil {
				d.errs.Addf(v.Span, "%s: %v", what, err)
				return
			}
			*p = &Size{n, v.Span}
		}
	case **Value:
		*p = v
	case *[]*Entry:
		*p = d.entries(v)
	case *[]String:
		for _, it := range listOf(v) {
			if x, ok := d.scalar(it, what, "a string"); ok {
				s, isStr := x.(string)
				if !isStr {
					d.wrong(it, what, "a string", x)
					continue
				}
				*p = append(*p, String{s, it.Span, true})
			}
		}
	default:
		d.nested(f, key, v)
	}
}

// nested fills pointers to sections, ordered maps and types with a form of
// their own.
func (d *decoder) nested(f reflect.Value, key, v *Value) {
	if u, ok := f.Addr().Interface().(unmarshaler); ok {
		u.unmarshal(d, v)
		return
	}
	switch f.Kind() {
	case reflect.Struct:
		d.section(v, f.Addr().Interface(), key.Str)
	case reflect.Pointer:
		if v.absent() {
			return
		}
		f.Set(reflect.New(f.Type().Elem()))
		if at := f.Elem().FieldByName("At"); at.IsValid() && at.Type() == reflect.TypeFor[Span]() {
			at.Set(reflect.ValueOf(key.Span))
		}
		if u, ok := f.Interface().(unmarshaler); ok {
			u.unmarshal(d, v)
			return
		}
		d.section(v, f.Interface(), key.Str)
	case reflect.Slice: // of *Named[T]
		if v.Kind != Map {
			d.errs.Addf(v.Span, "%s must be a mapping from names, not %s", key.Str, v.Describe())
			return
		}
		for _, p := range v.Pairs {
			if !IsName(p.Key.Str) {
				d.errs.Addf(p.Key.Span, "name must be a Python identifier, not %q", p.Key.Str)
				continue
			}
			if p.Value.absent() { // what is named is there
				d.errs.Addf(p.Value.Span, "%s must not be null; without it, leave %s out of %s", p.Key.Str, p.Key.Str, key.Str)
				continue
			}
			named := reflect.New(f.Type().Elem().Elem())
			named.Elem().FieldByName("Name").Set(reflect.ValueOf(String{p.Key.Str, p.Key.Span, true}))
			d.nested(named.Elem().FieldByName("V"), p.Key, p.Value)
			f.Set(reflect.Append(f, named))
		}
	default:
		panic("spec: field of unknown type " + f.Type().String())
	}
}

// scalar evaluates a scalar of a section.
func (d *decoder) scalar(v *Value, what, want string) (any, bool) {
	if v.Kind == List || v.Kind == Map {
		d.errs.Addf(v.Span, "%s must be %s, not %s", what, want, v.Describe())
		return nil, false
	}
	x, err := v.Eval(d.env)
	if err != nil {
		d.errs.AddErr(v.Span, err)
		return nil, false
	}
	return x, true
}

// AddErr reports an error of Eval at its own place, any other at s.
func (e *Errors) AddErr(s Span, err error) {
	if ee, ok := err.(*EvalError); ok {
		s = ee.Span
	}
	if err.Error() == "" { // a consequence of what is reported elsewhere
		return
	}
	e.Addf(s, "%v", err)
}

func (d *decoder) wrong(v *Value, what, want string, got any) {
	if v.expr != nil {
		d.errs.Addf(v.Span, "%s must be %s; this expression is %s (%s)", what, want, typeName(got), Show(got))
		return
	}
	d.errs.Addf(v.Span, "%s must be %s, not %s", what, want, v.Describe())
}

// enum reports whether a string is one of those that are allowed; if not, the
// default stands. Means says what to write for others, as the tag does.
func (d *decoder) enum(s String, what string, allowed []string, means string) bool {
	if slices.Contains(allowed, s.V) {
		return true
	}
	for _, m := range strings.Split(means, "|") {
		if known, write, ok := strings.Cut(m, ": "); ok && strings.EqualFold(known, s.V) {
			d.errs.Addf(s.At, "unknown value of %s %q; write %s", what, s.V, write)
			return false
		}
	}
	d.errs.Unknown(s.At, "value of "+what, s.V, allowed)
	return false
}

// pairsOf reads a tag that lists pairs: "float32: fp32|half: fp16".
func pairsOf(tag string, f func(word, of string)) {
	for _, p := range strings.Split(tag, "|") {
		if word, of, ok := strings.Cut(p, ": "); ok {
			f(word, of)
		}
	}
}

// canonical is the word that another one stands for by a tag `words`.
func canonical(word, words string) string {
	out := word
	pairsOf(words, func(other, of string) {
		if strings.EqualFold(other, word) {
			out = of
		}
	})
	return out
}

// canonicalKeys gives the keys of a section that have a second name the first one.
func (d *decoder) canonicalKeys(v *Value, fields fieldSet) {
	for i := 0; i < len(v.Pairs); i++ {
		key := v.Pairs[i].Key
		name := fields.also[key.Str]
		if name == "" {
			continue
		}
		other := slices.IndexFunc(v.Pairs, func(p Pair) bool { return p.Key.Str == name })
		switch {
		case other < 0:
			second := *key
			second.Str = name
			v.Pairs[i].Key = &second
			continue
		case key.Line < 0: // of the command line
			v.Pairs[other].Value = v.Pairs[i].Value
		case v.Pairs[other].Key.Line > 0 && v.Pairs[other].Value.Line > 0:
			d.errs.Addf(key.Span, "%s and %s are one key", key.Str, name)
		}
		v.Pairs = slices.Delete(v.Pairs, i, i+1)
		i--
	}
}

// place is where a mistake in a value is: on the command line, if that gives the param that
// the value consists of.
func (d *decoder) place(v *Value) Span {
	if at := originIn(d.root, v); at.Line < 0 {
		return at
	}
	return v.Span
}

// bounds reports whether a number, given as x, is in the bounds of the tags `min`
// and `max`; if not, the default stands.
func (d *decoder) bounds(n float64, x any, v *Value, what string, tag reflect.StructTag) bool {
	if min, err := strconv.ParseFloat(tag.Get("min"), 64); err == nil && n < min {
		d.errs.Addf(d.place(v), "%s must be at least %s, not %s", what, tag.Get("min"), Show(x))
		return false
	}
	if max, err := strconv.ParseFloat(tag.Get("max"), 64); err == nil && n > max {
		d.errs.Addf(d.place(v), "%s must be at most %s, not %s", what, tag.Get("max"), Show(x))
		return false
	}
	return true
}

// The forms of their own.

func (p *Param) unmarshal(d *decoder, v *Value) {
	if v.Kind != Map { // cls: [1, 1, 384]
		d.defaults(reflect.ValueOf(p).Elem())
		p.Shape = v
		return
	}
	d.section(v, (*paramSection)(p), "parameter")
}

// paramSection is Param without its own form.
type paramSection Param

func (i *Input) unmarshal(d *decoder, v *Value) {
	if v.Kind == List {
		d.defaults(reflect.ValueOf(i).Elem())
		i.Shape = v
		return
	}
	d.section(v, (*inputSection)(i), "input")
}

type inputSection Input

// A modules section is a mapping from names to entries, or a list of entries
// that name themselves with module:.
func (m *Modules) unmarshal(d *decoder, v *Value) {
	if v.Kind != Map {
		for _, it := range listOf(v) {
			if it.Get("module") == nil && (it.Kind == Map || it.Kind == Str) {
				d.errs.Addf(it.Span, "a module of this list needs module:, its attribute path")
			} else {
				*m = append(*m, d.entry(it))
			}
		}
		return
	}
	for _, p := range v.Pairs {
		if !IsModulePath(p.Key.Str) {
			d.errs.Addf(p.Key.Span, "module must be %s, not %q", modulePathForm, p.Key.Str)
			continue
		}
		e := d.entry(p.Value)
		if e.Module != nil {
			d.errs.Addf(e.Module.Span, "the module is named %q by its key already", p.Key.Str)
		}
		e.Module = p.Key
		*m = append(*m, e)
	}
}

// sample: 110KiB stands for its bytes.
func (s *Sample) unmarshal(d *decoder, v *Value) {
	if v.Kind == Map {
		d.section(v, (*sampleSection)(s), "sample")
		return
	}
	d.defaults(reflect.ValueOf(s).Elem())
	d.field(reflect.ValueOf(&s.Bytes).Elem(), "", &Value{Str: "sample"}, v)
}

type sampleSection Sample

func (z *ZeroGrad) unmarshal(d *decoder, v *Value) {
	d.defaults(reflect.ValueOf(z).Elem())
	if v.Kind == Str { // zero_grad: after_step
		d.field(reflect.ValueOf(&z.At).Elem(), `enum:"before_forward|before_backward|after_step|never"`, &Value{Str: "zero_grad"}, v)
		return
	}
	d.section(v, (*zeroGradSection)(z), "zero_grad")
}

type zeroGradSection ZeroGrad
