package spec

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// Vocabulary is what specs may call.
type Vocabulary struct {
	Heads      []Callable // layers and operators
	Optimizers []Callable
}

// Callable is a layer, operator or optimizer.
type Callable struct {
	Name string
	Args []Argument
}

// Argument is one argument of a Callable.
type Argument struct {
	Name    string
	Form    Form
	Choices []string // of a string
	Null    bool     // null is allowed
	Default any      // nil: none, or null
}

// Form is what YAML may hold for an argument.
type Form uint8

// The forms. A list may be given as its only item.
const (
	AnyForm Form = iota
	IntForm
	IntsForm
	NumberForm
	NumbersForm
	BoolForm
	StringForm
)

type object = map[string]any

// expression is a string with an expression, which may stand for any scalar.
var expression = object{"type": "string", "pattern": `\$\{.*\}`}

// Schema returns a JSON Schema (draft 2020-12) of the spec language, made from
// the structs that decode it and the tables behind the vocabulary. It tells
// editors what may stand where; memplan checks more than a schema can say.
func Schema(v Vocabulary) map[string]any {
	b := &schemaBuilder{defs: object{}}
	root := b.section(reflect.TypeFor[Spec]())
	b.vocabulary(v)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "memplan spec"
	root["required"] = []string{"memplan"}
	root["$defs"] = b.defs
	return root
}

type schemaBuilder struct{ defs object }

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

// section describes a struct with `yaml` tags.
func (b *schemaBuilder) section(t reflect.Type) object {
	props := object{}
	fields := fieldsOf(t)
	for _, key := range fields.names {
		f := t.FieldByIndex(fields.index[key])
		s := b.field(f)
		doc := f.Tag.Get("doc")
		if later := f.Tag.Get("later"); later != "" {
			if doc == "" {
				doc = later
			}
			doc += " (accepted, not modelled yet)"
		}
		if doc != "" {
			s["description"] = doc
		}
		props[key] = s
	}
	for other, key := range fields.also {
		props[other] = object{"description": "the same as " + key, "deprecated": true}
	}
	return closed(props)
}

// closed is a mapping with some keys and extensions.
func closed(props object) object {
	return object{"type": "object", "properties": props, "patternProperties": extensions, "additionalProperties": false}
}

// extensions are keys that may stand in any mapping.
var extensions = object{"^" + extension: object{"description": "not read, but for anchors in it"}}

// named describes a struct under its own name, once.
func (b *schemaBuilder) named(t reflect.Type) object {
	name := strings.ToLower(t.Name())
	if _, ok := b.defs[name]; !ok {
		b.defs[name] = object{} // stops recursion
		b.defs[name] = b.section(t)
	}
	return ref(name)
}

// field describes one field by its type.
func (b *schemaBuilder) field(f reflect.StructField) object {
	tag := f.Tag
	switch f.Type {
	case reflect.TypeFor[String]():
		s := object{"type": "string"}
		if enum := tag.Get("enum"); enum != "" {
			s = object{"enum": strings.Split(enum, "|")}
			var others []string
			pairsOf(tag.Get("words"), func(word, _ string) { others = append(others, word) })
			if len(others) > 0 {
				s = object{"anyOf": []any{s, object{"enum": others, "deprecated": true}}}
			}
		} else if key := f.Tag.Get("yaml"); key == "torch" || key == "cudnn" || key == "arch" || key == "cudnn_workspace" {
			s = object{"type": []string{"string", "number"}}
		}
		return withDefault(s, tag)
	case reflect.TypeFor[Integer]():
		return withDefault(bounded(object{"type": "integer"}, tag), tag)
	case reflect.TypeFor[Number]():
		return withDefault(bounded(object{"type": "number"}, tag), tag)
	case reflect.TypeFor[Boolean]():
		return withDefault(object{"type": "boolean"}, tag)
	case reflect.TypeFor[*Size]():
		return object{"type": []string{"string", "integer"}, "examples": []string{"24GiB"}}
	case reflect.TypeFor[*Value]():
		if name := tag.Get("spread"); name != "" {
			return b.spread(name)
		}
		return object{}
	case reflect.TypeFor[[]String]():
		return object{"type": []string{"array", "string"}, "items": object{"type": "string"}}
	case reflect.TypeFor[Units]():
		paths := object{"type": "array", "items": object{"type": "string"}}
		item := object{"anyOf": []any{object{"type": "string"}, paths, b.named(reflect.TypeFor[Unit]())}}
		return object{"anyOf": []any{object{"type": "string"}, object{"type": "array", "items": item}, b.named(reflect.TypeFor[Unit]())}}
	case reflect.TypeFor[*Callee]():
		return ref("optimizer")
	case reflect.TypeFor[ParamGroups]():
		return ref(KeyGroups)
	case reflect.TypeFor[Conversions]():
		return object{"type": "array", "items": b.named(reflect.TypeFor[Conversion]())}
	case reflect.TypeFor[[]*Entry]():
		return ref("entries")
	case reflect.TypeFor[Modules]():
		return object{"type": []string{"object", "array"}, "items": ref("entry"), "patternProperties": extensions, "additionalProperties": ref("entry")}
	}
	t := f.Type
	switch {
	case f.Type == reflect.TypeFor[*HFArguments]():
		return argumentsOf(trainer.HF)
	case f.Type == reflect.TypeFor[*SFTArguments]():
		return argumentsOf(trainer.SFT)
	case f.Type == reflect.TypeFor[*DPOArguments]():
		return argumentsOf(trainer.DPO)
	case f.Type == reflect.TypeFor[*GRPOArguments]():
		return argumentsOf(trainer.GRPO)
	case f.Type == reflect.TypeFor[*LightningArguments]():
		return argumentsOf(trainer.Lightning)
	case f.Type == reflect.TypeFor[*TorchtitanArguments]():
		return argumentsOf(trainer.Torchtitan)
	case f.Type == reflect.TypeFor[*MegatronArguments]():
		return argumentsOf(trainer.Megatron)
	case f.Type == reflect.TypeFor[*LitGPTArguments]():
		return anyOf(trainer.LitGPTTables()...)
	case t.Kind() == reflect.Pointer:
		if t.Elem() == reflect.TypeFor[Checkpoint]() {
			return object{"anyOf": []any{object{"type": []string{"boolean", "array", "string"}, "items": object{"type": "string"}}, b.named(t.Elem())}}
		}
		if t.Elem() == reflect.TypeFor[Freeze]() {
			return object{"anyOf": []any{object{"type": []string{"boolean", "array", "string"}, "items": object{"type": "string"}}, b.named(t.Elem())}}
		}
		switch t.Elem() {
		case reflect.TypeFor[Activations](), reflect.TypeFor[KBit]():
			return object{"anyOf": []any{object{"type": "boolean"}, expression, b.named(t.Elem())}}
		case reflect.TypeFor[KBit]():
			return object{"anyOf": []any{object{"type": "boolean"}, b.named(t.Elem())}}
		case reflect.TypeFor[LoRA](), reflect.TypeFor[Quantize](), reflect.TypeFor[Prune](): // a number stands for the first of its keys
			return object{"anyOf": []any{object{"type": []string{"number", "boolean"}}, b.named(t.Elem())}}
		}
		return b.named(t.Elem())
	case t.Kind() == reflect.Struct:
		return b.named(t)
	}
	// []*Named[T]: a mapping from names to T; inputs and parameters may be
	// given as their shape alone.
	elem, _ := t.Elem().Elem().FieldByName("V")
	item := b.named(elem.Type.Elem())
	if n := elem.Type.Elem().Name(); n == "Input" || n == "Param" {
		item = object{"anyOf": []any{item, object{"type": "array"}, expression}}
	}
	return object{"type": "object", "patternProperties": extensions, "additionalProperties": item}
}

// anyOf describes the arguments of a trainer that has several tables.
func anyOf(tables ...*trainer.Table) object {
	var all []any
	for _, t := range tables {
		all = append(all, argumentsOf(t))
	}
	return object{"anyOf": all}
}

// argumentsOf describes the arguments of a trainer. An argument a.b is the key b of the
// mapping a, or written a.b.
func argumentsOf(t *trainer.Table) object {
	props := object{}
	for i := range t.Arguments {
		a := &t.Arguments[i]
		s := object{}
		switch a.Form {
		case trainer.Int:
			s["type"] = []string{"integer", "string", "null"}
		case trainer.Number:
			s["type"] = []string{"number", "string", "null"}
		case trainer.Bool:
			s["type"] = []string{"boolean", "string", "null"}
		}
		if a.Choices != nil {
			all := []any{object{"enum": a.Choices}, expression}
			if a.Form == trainer.Strings {
				all = append(all, object{"type": "array", "items": object{"enum": a.Choices}})
			}
			s["anyOf"] = all
		}
		s["description"] = a.Why
		props[a.Name] = s
		if section, key, ok := strings.Cut(a.Name, "."); ok {
			if props[section] == nil {
				props[section] = closed(object{})
			}
			props[section].(object)["properties"].(object)[key] = s
		}
	}
	return closed(props)
}

// spread describes the section ddp or fsdp, or the number of its processes alone.
func (b *schemaBuilder) spread(name string) object {
	of := b.section(reflect.TypeFor[Parallel]())["properties"].(object)
	props := object{keyRanks: of[name]}
	for _, key := range spreadKeys(name) {
		props[key] = of[key]
	}
	return object{"anyOf": []any{object{"type": "integer"}, closed(props), expression}}
}

func bounded(s object, tag reflect.StructTag) object {
	if low, err := strconv.ParseFloat(tag.Get("min"), 64); err == nil {
		s["minimum"] = low
	}
	if high, err := strconv.ParseFloat(tag.Get("max"), 64); err == nil {
		s["maximum"] = high
	}
	return s
}

// withDefault allows an expression in place of a scalar and tells the default.
func withDefault(s object, tag reflect.StructTag) object {
	out := object{"anyOf": []any{s, expression}}
	if def, ok := tag.Lookup("default"); ok {
		out["default"] = def
	}
	return out
}

// vocabulary describes entries and optimizers.
func (b *schemaBuilder) vocabulary(v Vocabulary) {
	entryProps := object{}
	var names []string
	for _, c := range v.Heads {
		names = append(names, c.Name)
		entryProps[c.Name] = object{"anyOf": []any{arguments(c), ref("entry"), object{"not": object{"type": "object"}}}}
	}
	for _, s := range Statements {
		names = append(names, s)
		entryProps[s] = object{}
	}
	for _, s := range StepStatements {
		names = append(names, s)
		entryProps[s] = object{}
	}
	entryProps[HeadLayers], entryProps[HeadSeq] = ref("entries"), ref("entries")
	entryProps[HeadModuleList], entryProps[HeadModuleDict] = object{"type": "array"}, object{"type": "object"}
	for _, m := range Modifiers {
		entryProps[m] = object{}
	}
	b.defs["entry"] = object{"anyOf": []any{
		object{"enum": names},
		object{"type": "string", "pattern": `=|\.append\(`, "description": "a statement of Python, such as h = x * 0.5 + y"},
		closed(entryProps),
	}}
	b.defs["entries"] = object{"anyOf": []any{object{"type": "array", "items": ref("entry")}, ref("entry")}}
	var optimizers []string
	props := object{}
	for _, c := range v.Optimizers {
		optimizers = append(optimizers, c.Name)
		props[c.Name] = arguments(c)
	}
	b.defs["optimizer"] = object{"anyOf": []any{
		object{"enum": optimizers},
		object{"type": "object", "properties": props, "additionalProperties": false, "maxProperties": 2},
	}}
	props[KeyGroups] = ref(KeyGroups)
	b.defs[KeyGroups] = object{"type": "array", "items": object{"type": "object", "properties": object{
		"params": object{"type": []string{"array", "string"}, "items": object{"type": "string"}},
	}}}
}

// arguments describes the arguments of a callable, given by name.
func arguments(c Callable) object {
	props := object{}
	for _, a := range c.Args {
		props[a.Name] = a.schema()
	}
	return closed(props)
}

func (a *Argument) schema() object {
	var s object
	switch a.Form {
	case AnyForm:
		return object{}
	case IntForm:
		s = object{"type": "integer"}
	case NumberForm:
		s = object{"type": "number"}
	case IntsForm, NumbersForm:
		item := object{"type": "integer"}
		if a.Form == NumbersForm {
			item = object{"type": "number"}
		}
		s = object{"anyOf": []any{item, object{"type": "array", "items": object{"anyOf": []any{item, expression}}}}}
		if a.Choices != nil {
			s["anyOf"] = append(s["anyOf"].([]any), object{"enum": a.Choices})
		}
	case BoolForm:
		s = object{"type": "boolean"}
	case StringForm:
		s = object{"type": "string"}
		if len(a.Choices) > 0 {
			s = object{"enum": a.Choices}
		}
	}
	options := []any{s, expression}
	if a.Null {
		options = append(options, object{"type": "null"})
	}
	out := object{"anyOf": options}
	if a.Default != nil {
		out["default"] = a.Default
	}
	return out
}
