package spec

import (
	"regexp"
	"slices"
	"strconv"
)

// Planned is an item of the plan of parallelize_module: the modules that a pattern
// names, and their style.
type Planned struct {
	Pattern       String
	At            Span   // of the style
	Style         string // as in program
	Input, Output *Layout
	Local         bool

	Layouts, Desired []*Layout // of prepare_input and prepare_output; nil ones are left as they are
}

// Layout is a placement of a tensor: replicate or shard(dim).
type Layout struct {
	Shard bool
	Dim   int
}

var (
	styles     = []string{"colwise", "rowwise", "sequence", "prepare_input", "prepare_output"}
	shardForm  = regexp.MustCompile(`^[Ss]hard\((-?[0-9])\)$`)
	styleNames = map[string]string{"ColwiseParallel": "colwise", "RowwiseParallel": "rowwise", "SequenceParallel": "sequence",
		"PrepareModuleInput": "prepare_input", "PrepareModuleOutput": "prepare_output"}
)

// Planned reads the plan of tp.
func (p *Parallel) Planned(errs *Errors) []Planned {
	if p == nil || p.Plan == nil {
		return nil
	}
	if p.Plan.Kind != Map {
		errs.Addf(p.Plan.Span, "plan is a mapping of modules to styles, such as {\"layers.*.up\": colwise}, not %s", p.Plan.Describe())
		return nil
	}
	var out []Planned
	for _, x := range p.Plan.Pairs {
		item := Planned{Pattern: String{V: x.Key.Str, At: x.Key.Span, Set: true}, At: x.Value.Span}
		name, args := x.Value, (*Value)(nil)
		if name.Kind == Map && len(name.Pairs) == 1 {
			name, args = name.Pairs[0].Key, name.Pairs[0].Value
		}
		item.Style = name.Str
		if s, ok := styleNames[item.Style]; ok {
			item.Style = s
		}
		switch {
		case slices.Contains(styles, item.Style):
			item.arguments(args, errs)
			out = append(out, item)
		default:
			if name.Kind != Str {
				errs.Addf(name.Span, "a style is colwise, rowwise, sequence, prepare_input or prepare_output, or a mapping of one to its arguments, not %s", name.Describe())
				continue
			}
			errs.Unknown(name.Span, "style of parallelize_module", name.Str, styles)
		}
	}
	return out
}

// arguments reads those of a style.
func (x *Planned) arguments(args *Value, errs *Errors) {
	if args == nil || args.Kind == Null {
		args = &Value{Kind: Map}
	}
	if args.Kind != Map {
		errs.Addf(args.Span, "the arguments of %s are a mapping, not %s", x.Style, args.Describe())
		return
	}
	prepares := map[string]string{"prepare_input": "input", "prepare_output": "output"}[x.Style]
	allowed := []string{"input_layouts", "output_layouts", "use_local_output"}
	switch {
	case prepares != "":
		allowed = []string{prepares + "_layouts", "desired_" + prepares + "_layouts", "use_local_output"}
	case x.Style == "sequence":
		allowed = allowed[2:]
	}
	x.Local = x.Style != "sequence" && x.Style != "prepare_input"
	for _, p := range args.Pairs {
		switch k := p.Key.Str; {
		case k == "use_local_output":
			if p.Value.Kind != Bool {
				errs.Addf(p.Value.Span, "use_local_output is true or false, not %s", p.Value.Describe())
			}
			x.Local = p.Value.Bool
		case !slices.Contains(allowed, k):
			errs.Unknown(p.Key.Span, "argument of "+x.Style, k, allowed)
		case prepares != "" && k == allowed[0]:
			x.Layouts = layouts(p.Value, errs)
		case prepares != "":
			x.Desired = layouts(p.Value, errs)
		case k == "input_layouts":
			x.Input = layout(p.Value, errs)
		default:
			x.Output = layout(p.Value, errs)
		}
	}
	if prepares != "" && (x.Layouts == nil || len(x.Layouts) != len(x.Desired)) {
		errs.Addf(x.At, "%s needs %s and %s, which are equally many", x.Style, allowed[0], allowed[1])
	}
}

// layouts reads one placement, or a list of some, in which null stands for what is left
// as it is.
func layouts(v *Value, errs *Errors) []*Layout {
	if v.Kind != List {
		return []*Layout{layout(v, errs)}
	}
	out := make([]*Layout, len(v.Items))
	for i, it := range v.Items {
		if it.Kind != Null {
			out[i] = layout(it, errs)
		}
	}
	return out
}

// layout reads a placement.
func layout(v *Value, errs *Errors) *Layout {
	if v.Kind == Str {
		if v.Str == "replicate" || v.Str == "Replicate()" {
			return &Layout{}
		}
		if m := shardForm.FindStringSubmatch(v.Str); m != nil {
			n, _ := strconv.Atoi(m[1])
			return &Layout{Shard: true, Dim: n}
		}
	}
	errs.Addf(v.Span, "a layout is replicate or shard(n), n a dimension, not %s", v.Describe())
	return nil
}
