package spec

import (
	"reflect"
	"strings"
)

// Key is what the tags of a section's field say of a key.
type Key struct {
	Name, Doc string
	Form      string   // integer, number, true or false, string, size; "" if it has a form of its own
	Enum      []string // the allowed strings
	Min, Max  string
	Default   string
	Later     bool     // accepted, not modelled yet
	Also      []string // other names of the key
	Words     []string // other words for its values, each as "word: value"
}

// Keys returns the keys of every section in their order, by the name of the
// section's type in lower case, which is its name in the JSON Schema; those of
// the file are of "spec".
func Keys() map[string][]Key {
	out := map[string][]Key{}
	var section func(t reflect.Type)
	section = func(t reflect.Type) {
		name := strings.ToLower(t.Name())
		if _, ok := out[name]; ok {
			return
		}
		out[name] = nil // stops recursion
		fields := fieldsOf(t)
		for _, key := range fields.names {
			f := t.FieldByIndex(fields.index[key])
			out[name] = append(out[name], keyOf(key, f.Tag, f.Type))
			if inner := sectionOf(f.Type); inner != nil {
				section(inner)
			}
		}
	}
	section(reflect.TypeFor[Spec]())
	section(reflect.TypeFor[Lengths]()) // a value of a param
	return out
}

func keyOf(name string, tag reflect.StructTag, t reflect.Type) Key {
	k := Key{Name: name, Doc: tag.Get("doc"), Min: tag.Get("min"), Max: tag.Get("max"), Default: tag.Get("default"), Later: tag.Get("later") != ""}
	k.Also = strings.Fields(tag.Get("also"))
	if words := tag.Get("words"); words != "" {
		k.Words = strings.Split(words, "|")
	}
	if enum := tag.Get("enum"); enum != "" {
		k.Enum = strings.Split(enum, "|")
	}
	switch t {
	case reflect.TypeFor[String]():
		k.Form = "string"
	case reflect.TypeFor[Integer]():
		k.Form = "integer"
	case reflect.TypeFor[Number]():
		k.Form = "number"
	case reflect.TypeFor[Boolean]():
		k.Form = "true or false"
	case reflect.TypeFor[*Size]():
		k.Form = "size"
	}
	return k
}

// sectionOf is the struct that a field's keys are of, nil if it has none.
func sectionOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || isScalar(t) {
		return nil
	}
	if v, ok := t.FieldByName("V"); ok { // of *Named[T]
		return sectionOf(v.Type)
	}
	switch t {
	case reflect.TypeFor[Value](), reflect.TypeFor[Size](), reflect.TypeFor[Entry](), reflect.TypeFor[Callee]():
		return nil
	}
	return t
}
