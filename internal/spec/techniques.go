package spec

import "reflect"

// Freeze names the parameters that are not trained: patterns of the paths of
// modules and parameters.
type Freeze struct {
	At      Span     `yaml:"-"`
	Modules []String `yaml:"modules" doc:"paths or patterns of modules and parameters, such as layers.[0-3], *.bias or *"`
	Except  []String `yaml:"except" doc:"paths or patterns of what is trained nevertheless"`
}

// freeze: "encoder.*" and freeze: [encoder, "*.bias"] stand for their modules.
func (f *Freeze) unmarshal(d *decoder, v *Value) {
	if v.Kind == Map {
		d.section(v, (*freezeSection)(f), "freeze")
		return
	}
	if v.Kind == Null || (v.Kind == Bool && !v.Bool) {
		return
	}
	d.field(reflect.ValueOf(&f.Modules).Elem(), "", &Value{Str: "freeze"}, v)
}

type freezeSection Freeze
