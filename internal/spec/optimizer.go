package spec

import "reflect"

// Callee is an optimizer: a name, perhaps with arguments and parameter groups:
// AdamW, {AdamW: {lr: 1e-3}}, {AdamW: {lr: 1e-3}, groups: [...]}.
type Callee struct {
	Name   String
	Arg    *Value // nil: no arguments
	Groups ParamGroups
}

// ParamGroups are the parameter groups of an optimizer, in their order.
type ParamGroups []*ParamGroup

// ParamGroup is one of them: the parameters that it takes and the arguments that
// are its own.
type ParamGroup struct {
	At     Span
	Params []String // none: those that no other group takes
	Arg    *Value   // a mapping
}

// Closures lists the optimizers whose step needs a closure, which evaluates the
// model again.
var Closures = []string{"LBFGS"}

// keyClosure is the argument of optimizer_step that holds the statements of a
// closure.
const keyClosure = "closure"

// KeyGroups is the key of parameter groups beside an optimizer's name.
const KeyGroups = "groups"

func (c *Callee) unmarshal(d *decoder, v *Value) {
	c.Name.At = v.Span
	switch {
	case v.bad():
	case v.Kind == Str && v.expr == nil:
		c.Name = String{v.Str, v.Span, true}
	case v.Kind == Map && len(v.Pairs) > 0:
		for _, p := range v.Pairs {
			switch {
			case p.Key.Str == KeyGroups:
				c.Groups.unmarshal(d, p.Value)
			case c.Name.Set:
				d.errs.Addf(p.Key.Span, "one name is expected; %q is a second beside %q (several optimizers are listed in optimizers:)", p.Key.Str, c.Name.V)
			default:
				c.Name = String{p.Key.Str, p.Key.Span, true}
				if p.Value.Kind != Null {
					c.Arg = p.Value
				}
			}
		}
		if !c.Name.Set {
			d.errs.Addf(v.Span, "groups need their optimizer beside them, such as {AdamW: {lr: 1e-3}, groups: [...]}")
		}
	default:
		d.errs.Addf(v.Span, "write a name, or a name with arguments such as {AdamW: {lr: 1e-3}}; not %s", v.Describe())
	}
}

func (g *ParamGroups) unmarshal(d *decoder, v *Value) {
	const form = "{params: [\"*.bias\", \"*norm*\"], weight_decay: 0.0}"
	if v.Kind != List || len(v.Items) == 0 {
		d.errs.Addf(v.Span, "groups is a list of parameter groups such as %s, not %s", form, v.Describe())
		return
	}
	rest := false
	for _, it := range v.Items {
		if it.Kind != Map {
			d.errs.Addf(it.Span, "a parameter group is a mapping such as %s, not %s", form, it.Describe())
			continue
		}
		x := &ParamGroup{At: it.Span, Arg: it.without("params")}
		if p := it.Get("params"); p != nil {
			d.field(reflect.ValueOf(&x.Params).Elem(), "", &Value{Str: "params"}, p)
		}
		if len(x.Params) == 0 {
			if rest {
				d.errs.Addf(it.Span, "only one group may leave out params: it takes the parameters that no other group takes")
			}
			rest = true
		}
		*g = append(*g, x)
	}
}
