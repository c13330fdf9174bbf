package spec

import (
	"slices"
	"strconv"
	"strings"
)

// Words calls f with every word in the references of entries: names that
// inputs and arguments may mean.
func Words(es []*Entry, f func(string)) {
	var value func(v *Value)
	value = func(v *Value) {
		if v == nil {
			return
		}
		eachWord(v.Str, f)
		for _, it := range v.Items {
			value(it)
		}
		for _, p := range v.Pairs {
			value(p.Value)
		}
	}
	var operand func(o *Operand)
	operand = func(o *Operand) {
		value(o.Value)
		if o.Nested != nil {
			Words([]*Entry{o.Nested}, f)
		}
		for _, it := range o.List {
			operand(it)
		}
		for _, p := range o.Named {
			operand(p.V)
		}
	}
	for _, e := range es {
		value(e.Arg)
		for _, o := range e.Inputs {
			operand(o)
		}
		Words(e.Body, f)
	}
}

// eachWord calls f with every identifier in a text.
func eachWord(text string, f func(string)) {
	start := -1
	for i, c := range text + " " {
		letter := c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (start >= 0 && c >= '0' && c <= '9')
		if letter && start < 0 {
			start = i
		} else if !letter && start >= 0 {
			f(text[start:i])
			start = -1
		}
	}
}

// LossValue is the loss section of the only model, as written; nil if there is
// none in it.
func (s *Spec) LossValue() *Value {
	v := s.root.Get("model").Get("loss")
	if v == nil || v.Kind == Null {
		return nil
	}
	return v
}

// Desugar returns the step that the keys of train stand for, with the given
// loss.
func (s *Spec) Desugar(loss *Value) []*Entry {
	d := &decoder{errs: s.Errs, env: s.Env}
	return d.entries(s.stepValue(loss))
}

// What steps are written with, as YAML values. They stand at the beginning of
// the file.

func word(w string) *Value { return &Value{Span: madeUp, Kind: Str, Str: w} }

func pair(k string, v *Value) Pair { return Pair{word(k), v} }

func mapping(ps ...Pair) *Value { return &Value{Span: madeUp, Kind: Map, Pairs: ps} }

func boolean(b bool) *Value {
	return &Value{Span: madeUp, Kind: Bool, Bool: b, Str: strconv.FormatBool(b)}
}

func integer(n int64) *Value { return &Value{Span: madeUp, Kind: Int, Int: n, Str: pyStr(n)} }

func float(f float64) *Value { return &Value{Span: madeUp, Kind: Float, Float: f, Str: pyStr(f)} }

func sequence(items ...*Value) *Value { return &Value{Span: madeUp, Kind: List, Items: items} }

var madeUp = Span{Pos: Pos{1, 1}}

// MadeUp reports whether s is the place of what the spec does not say itself.
func (s Span) MadeUp() bool { return s == madeUp }

// forwardOf calls a model and names what it gives.
func forwardOf(model, name string, more ...Pair) *Value {
	return mapping(pair(HeadForward, mapping(append([]Pair{pair("model", word(model))}, more...)...)), pair("name", word(name)))
}

// lossEntries are the entries of a loss. The value of the last one is called loss; if
// it has another name, that is its second.
func lossEntries(loss *Value) []*Value {
	if loss == nil {
		return nil
	}
	es := append([]*Value(nil), listOf(loss)...)
	if len(es) == 0 {
		return es
	}
	last := es[len(es)-1]
	name := bound(last)
	switch {
	case name == nil:
		es[len(es)-1] = named(last)
	case name.Kind == Str && IsName(name.Str) && !slices.ContainsFunc(es, func(e *Value) bool { return bindsLoss(bound(e)) }):
		again := mapping(pair("inputs", word(name.Str)), pair("name", word("loss")))
		again.Span = last.Span
		es = append(es, again)
	}
	return es
}

// bound is what an entry binds, as written: its name, or the left side of a
// statement of Python; nil if it binds nothing by name.
func bound(e *Value) *Value {
	if e.Kind == Str && isStatement(e.Str) {
		names := e.Str
		if m := assignment.FindStringSubmatch(e.Str); m != nil {
			names = m[1]
		}
		return &Value{Span: e.Span, Kind: Str, Str: strings.TrimSpace(names)}
	}
	return e.Get("name")
}

// bindsLoss reports whether loss is among the names that an entry binds.
func bindsLoss(names *Value) bool {
	switch {
	case names == nil:
		return false
	case names.Kind == List:
		return slices.ContainsFunc(names.Items, bindsLoss)
	}
	return slices.Contains(strings.FieldsFunc(names.Str, func(r rune) bool { return strings.ContainsRune("()[], ", r) }), "loss")
}

// keeps are the statements of a key keep: a value to keep, or several.
func keeps(v *Value) *Value {
	out := sequence()
	if v != nil && v.Kind != Null {
		for _, it := range listOf(v) {
			e := mapping(Pair{&Value{Span: it.Span, Kind: Str, Str: HeadKeep}, it})
			e.Span = it.Span
			out.Items = append(out.Items, e)
		}
	}
	return out
}

// stepValue writes the step as YAML values, so that it can be printed too.
func (s *Spec) stepValue(loss *Value) *Value {
	body := sequence()
	add := func(v ...*Value) { body.Items = append(body.Items, v...) }
	t := &s.Train
	engine := s.Parallel.IsDeepSpeed() // whose step drops the gradients, and whose backward divides them
	zero := func(where string) {
		if t.ZeroGrad.At.V != where || t.InBackward.V || engine {
			return
		}
		if t.ZeroGrad.SetToNone.V {
			add(word(HeadZeroGrad))
		} else {
			add(mapping(pair(HeadZeroGrad, mapping(pair("set_to_none", boolean(false))))))
		}
	}
	empty := func(where string) {
		if t.EmptyCache == nil || t.EmptyCache.At.V != where {
			return
		}
		if t.EmptyCache.Every.V > 1 {
			add(mapping(pair(HeadEmpty, &Value{Span: madeUp}), pair("every", integer(t.EmptyCache.Every.V))))
		} else {
			add(word(HeadEmpty))
		}
	}
	forward := forwardOf("model", "out")
	if s.Mode.V != "train" {
		empty("step_start")
		add(word(HeadBatch))
		add(forward)
		add(keeps(t.Keep).Items...)
		empty("step_end")
		return body
	}
	empty("step_start")
	micro := t.GradAccumulation.V
	outer := body
	if micro > 1 { // the statements of a microbatch, repeated
		zero("before_forward")
		zero("before_backward")
		body = sequence()
	}
	add(word(HeadBatch))
	closure := micro == 1 && !engine && t.Optimizer != nil && slices.Contains(Closures, t.Optimizer.Name.V)
	if closure { // all up to the step of the optimizer
		outer, body = body, sequence()
	}
	if micro == 1 {
		zero("before_forward")
	}
	if s.Teacher != nil {
		add(forwardOf(TeacherName, TeacherOut, pair("no_grad", boolean(true))))
	}
	add(forward)
	if s.Teacher != nil {
		add(s.distillation(loss)...)
	} else {
		add(lossEntries(loss)...)
	}
	if micro > 1 && !engine {
		add(mapping(pair("div", integer(micro)), pair("inputs", word("loss")), pair("name", word("loss")), pair("autocast", boolean(false))))
	} else {
		zero("before_backward")
	}
	empty("before_backward")
	backward := mapping(pair(HeadBackward, word("loss")))
	if loss != nil { // that the loss is a tensor of one element is found out here
		backward.Span, backward.Pairs[0].Value.Span = loss.Span, loss.Span
	}
	add(backward)
	if engine {
		add(word(HeadOptimizer))
	}
	if micro > 1 {
		repeated := func(n int64) *Value {
			v := mapping(pair(HeadLayers, body), pair("repeat", integer(n)))
			v.Span = t.GradAccumulation.At
			return v
		}
		if group := repeated(micro); s.Parallel != nil && s.Parallel.NoSync.V {
			local, last := repeated(micro-1), body.Items
			sync := func(on bool) *Value {
				return mapping(pair(HeadSync, mapping(pair("on", boolean(on)), pair("model", word("model")))))
			}
			body = outer
			add(sync(false), local, sync(true))
			add(last...)
		} else {
			body = outer
			add(group)
		}
	}
	if t.ClipGradNorm.Set {
		add(mapping(pair(HeadClipNorm, float(t.ClipGradNorm.V))))
	}
	if t.ClipGradValue.Set {
		add(mapping(pair(HeadClipValue, float(t.ClipGradValue.V))))
	}
	if closure {
		add(mapping(pair(HeadReturn, word("loss"))))
		step := mapping(pair(HeadOptimizer, mapping(pair(keyClosure, body))))
		body = outer
		add(step)
	} else if !t.InBackward.V && !engine {
		add(word(HeadOptimizer))
	}
	if t.EMA != nil {
		add(word(HeadEMA))
	}
	zero("after_step")
	add(keeps(t.Keep).Items...)
	empty("step_end")
	return body
}

// named gives an entry the name loss.
func named(e *Value) *Value {
	n := &Value{Span: e.Span, Kind: Map}
	if e.Kind == Map {
		n.Pairs = append(n.Pairs, e.Pairs...)
	} else {
		n.Pairs = append(n.Pairs, Pair{e, &Value{Span: e.Span}})
	}
	n.Pairs = append(n.Pairs, pair("name", word("loss")))
	return n
}
