package spec

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/memplan/memplan/internal/printable"
)

// Explicit prints the spec with everything said that it implies, as YAML: the
// step as a list of statements in place of the keys of train, params as their
// values, and the model of a preset in place of its name. Model is the spec
// that defines the model: s itself, or the preset, read with its params; loop that
// with the statements of a trainer, nil without one. What Explicit prints means the
// same as s.
func (s *Spec) Explicit(model, loop *Spec) ([]byte, error) {
	own := s.Step != nil // a step of its own refers to params of s
	if own {
		model = s
	}
	if m := s.Model; !own && m != nil && m.Load != nil {
		s.Errs.Addf(m.Load.At, "a model that is read from a checkpoint (load) has no form without hf, and is not written out")
		return nil, s.Errs.Err()
	}
	if m := s.Model; loop != nil && m != nil && m.DType.Set {
		s.Errs.Addf(m.DType.At, "a model that is converted before its trainer takes it (dtype) has no form without the trainer, and is not written out")
		return nil, s.Errs.Err()
	}
	if m := s.Model; !own && m != nil && m.OfHF() && s.PEFT.byType() {
		s.Errs.Addf(s.PEFT.At, "the layers that peft targets are those of the model's type, which has no form without hf; name them in target_modules and write linear_names: false, and the job can be written out")
		return nil, s.Errs.Err()
	}
	if m := s.Model; !own && m != nil && s.PEFT.Prompts() != nil {
		s.Errs.Addf(s.PEFT.At, "what stands around the model for virtual tokens has no form without hf; the job is not written out")
		return nil, s.Errs.Err()
	}
	if p := s.PEFT; p != nil && p.AdaLoRA != nil && s.Trainer.OfTransformers() && s.Trainer.Args().Number("label_smoothing_factor") != 0 {
		s.Errs.Addf(p.At, "adalora adds nothing to the loss of a trainer with label_smoothing_factor, which has no form without the trainer; the job is not written out")
		return nil, s.Errs.Err()
	}
	if t := s.Trainer; t != nil && t.GRPO != nil {
		s.Errs.Addf(t.Args().At, "trainer: grpo asks the model for the logits of completions alone, which has no form without hf; the job is not written out")
		return nil, s.Errs.Err()
	}
	if s.Reference() != nil {
		s.Errs.Addf(s.Trainer.Args().At, "the reference of trainer: %s is read from a checkpoint and has no form without hf; the job is not written out", s.Trainer.Key())
		return nil, s.Errs.Err()
	}
	engine := s.Parallel.IsDeepSpeed() // whose step is no statements
	if loop != nil && engine {
		s.Errs.Addf(s.Trainer.At, "the loop of a trainer around DeepSpeed's engine has no form without the trainer, and is not written out")
		return nil, s.Errs.Err()
	}
	if loop != nil {
		return s.explicitLoop(model, loop)
	}
	out := &Value{Kind: Map}
	put := func(key string, v *Value) {
		if v != nil {
			out.Pairs = append(out.Pairs, Pair{&Value{Kind: Str, Str: key}, v})
		}
	}
	for _, p := range s.root.Pairs {
		switch key := p.Key.Str; {
		case key == "memplan" || key == "params" || key == "step":
		case engine && key == "train":
			put(key, s.constant(p.Value))
		case key == "model" && !own && (engine || s.Eval != nil && s.Eval.Step == nil): // the evaluation has the loss, too
			put(key, model.root.Get(key))
		case key == "model" && !own:
			put(key, model.root.Get(key).without("loss"))
		case key == "train" && !own:
			put(key, s.constant(p.Value).without("zero_grad", "empty_cache", "clip_grad_norm", "clip_grad_value", "grad_accumulation", "keep"))
		case key == "teacher" && !own:
			put(key, p.Value.without("loss"))
		case key == "blocks" || key == "models" || key == "model" || key == "teacher" || key == "eval" || key == "before":
			put(key, p.Value)
		default:
			put(key, s.constant(p.Value))
		}
	}
	step := s.root.Get("step")
	if !own && !engine {
		loss := model.LossValue()
		if v := s.LossValue(); v != nil {
			loss = v
		}
		step = s.stepValue(loss)
	}
	put("step", step)
	head := &Value{Kind: Map, Pairs: []Pair{{&Value{Kind: Str, Str: "memplan"}, &Value{Kind: Int, Str: strconv.Itoa(Version1)}}}}
	params := model.params(out)
	if before := s.root.Get("before"); model != s && before != nil { // which refers to params of s
		for _, p := range s.params(before).Pairs {
			if params.Get(p.Key.Str) == nil {
				params.Pairs = append(params.Pairs, p)
			}
		}
	}
	if len(params.Pairs) > 0 {
		head.Pairs = append(head.Pairs, Pair{&Value{Kind: Str, Str: "params"}, params})
	}
	out.Pairs = append(head.Pairs, out.Pairs...)
	return out.print()
}

// print writes a spec.
func (v *Value) print() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v.node(0)); err != nil {
		return nil, fmt.Errorf("printing the spec: %w", err)
	}
	return []byte(printable.Quoted(b.String())), e.Close()
}

// params are the spec's params that a tree refers to, with their values.
func (s *Spec) params(tree *Value) *Value {
	out, used := &Value{Kind: Map}, tree.Names()
	for _, n := range s.ParamNames() {
		if !used[n] {
			continue
		}
		x, _ := s.Env.Lookup(n)
		out.Pairs = append(out.Pairs, Pair{&Value{Kind: Str, Str: n}, valueOf(x)})
	}
	return out
}

// without returns a mapping less some keys.
func (v *Value) without(keys ...string) *Value {
	if v == nil || v.Kind != Map {
		return v
	}
	out := &Value{Span: v.Span, Kind: Map}
next:
	for _, p := range v.Pairs {
		for _, k := range keys {
			if p.Key.Str == k {
				continue next
			}
		}
		out.Pairs = append(out.Pairs, p)
	}
	if len(out.Pairs) == 0 {
		return nil
	}
	return out
}

// constant replaces the expressions of a section, which know params alone, by
// their values.
func (s *Spec) constant(v *Value) *Value {
	switch {
	case v.Kind == List:
		out := &Value{Kind: List}
		for _, it := range v.Items {
			out.Items = append(out.Items, s.constant(it))
		}
		return out
	case v.Kind == Map:
		out := &Value{Kind: Map}
		for _, p := range v.Pairs {
			out.Pairs = append(out.Pairs, Pair{p.Key, s.constant(p.Value)})
		}
		return out
	case v.IsExpr():
		if x, err := v.Eval(s.Env); err == nil {
			return valueOf(x)
		}
	}
	return v
}

// valueOf writes an evaluated value as a tree.
func valueOf(x any) *Value {
	switch x := x.(type) {
	case nil:
		return &Value{Kind: Null, Str: "null"}
	case bool:
		return &Value{Kind: Bool, Bool: x, Str: strconv.FormatBool(x)}
	case int64:
		return &Value{Kind: Int, Int: x, Str: strconv.FormatInt(x, 10)}
	case float64:
		return &Value{Kind: Float, Float: x, Str: pyStr(x)}
	case []any:
		v := &Value{Kind: List}
		for _, it := range x {
			v.Items = append(v.Items, valueOf(it))
		}
		return v
	}
	text := pyStr(x)
	if strings.Contains(text, "${") { // no expression, though it reads like one: the literal of it
		text = "${" + strconv.Quote(text) + "}"
	}
	return &Value{Kind: Str, Str: text}
}

// node writes the tree for yaml.v3. Collections that hold scalars alone are
// written in one line, deeper in than the sections.
func (v *Value) node(depth int) *yaml.Node {
	n := &yaml.Node{}
	switch {
	case v.Kind == Null && v.Str == "": // {ReLU: }: no arguments
		n.Kind, n.Tag, n.Style = yaml.MappingNode, "!!map", yaml.FlowStyle
	case v.Kind == List || v.Kind == Map:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if v.Kind == Map {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		if depth > 1 && v.flat() {
			n.Style = yaml.FlowStyle
		}
		for _, it := range v.Items {
			n.Content = append(n.Content, it.node(depth+1))
		}
		for _, p := range v.Pairs {
			n.Content = append(n.Content, p.Key.node(depth+1), p.Value.node(depth+1))
		}
	default:
		n.Kind, n.Value = yaml.ScalarNode, v.Str
		n.Tag = scalarTags[v.Kind]
		if printable.Text(v.Str) != v.Str { // in quotes that know escapes
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}

var scalarTags = map[Kind]string{Null: "!!null", Bool: "!!bool", Int: "!!int", Float: "!!float", Str: "!!str"}

// flat reports whether the tree is shallow enough for one line.
func (v *Value) flat() bool {
	n := 0
	var count func(v *Value, depth int) bool
	count = func(v *Value, depth int) bool {
		n += len(v.Str) + 3
		if depth > 2 {
			return false
		}
		for _, it := range v.Items {
			if !count(it, depth+1) {
				return false
			}
		}
		for _, p := range v.Pairs {
			n += len(p.Key.Str) + 2
			if !count(p.Value, depth+1) {
				return false
			}
		}
		return true
	}
	return count(v, 0) && n < 90
}
