package spec

import "reflect"

// unmarshal reads checkpoint: true or false, a list of modules, or a mapping.
func (c *Checkpoint) unmarshal(d *decoder, v *Value) {
	if v.Kind == Map {
		d.section(v, (*checkpointSection)(c), "checkpoint")
		return
	}
	d.defaults(reflect.ValueOf(c).Elem())
	switch {
	case v.bad():
	case v.Kind == Bool || v.IsExpr():
		c.When = v
	case v.Kind == List || v.Kind == Str:
		d.field(reflect.ValueOf(&c.Modules).Elem(), "", &Value{Str: "modules"}, v)
	default:
		d.errs.Addf(v.Span, "checkpoint is true, false, a list of modules or a mapping such as {modules: [\"layers.*\"]}, not %s", v.Describe())
	}
}

// checkpointSection is Checkpoint without its own forms.
type checkpointSection Checkpoint
