package spec

// Words calls f with every word in the references of entries: names that
// inputs and arguments may mean.
func Words(es []*Entry, f func(string)) {
	var value func(v *Value)
	value = func(v *Value) {
		if v == nil {
			return
		}
		start := -1
		for i, c := range v.Str + " " {
			letter := c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (start >= 0 && c >= '0' && c <= '9')
			if letter && start < 0 {
				start = i
			} else if !letter && start >= 0 {
				f(v.Str[start:i])
				start = -1
			}
		}
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
	}
	for _, e := range es {
		value(e.Arg)
		for _, o := range e.Inputs {
			operand(o)
		}
		Words(e.Body, f)
	}
}

// LossValue is the loss section of the only model, as written.
func (s *Spec) LossValue() *Value { return s.root.Get("model").Get("loss") }

// Desugar returns the step that the keys of train stand for, with the given
// loss.
func (s *Spec) Desugar(loss *Value) []*Entry {
	d := &decoder{errs: s.Errs, env: s.Env}
	return d.entries(s.stepValue(loss))
}

// stepValue writes the step as YAML values, so that it can be printed too.
func (s *Spec) stepValue(loss *Value) *Value {
	at := Span{Pos: Pos{1, 1}}
	word := func(w string) *Value { return &Value{Span: at, Kind: Str, Str: w} }
	pair := func(k string, v *Value) Pair { return Pair{word(k), v} }
	mapping := func(ps ...Pair) *Value { return &Value{Span: at, Kind: Map, Pairs: ps} }
	boolean := func(b bool) *Value {
		text := "false"
		if b {
			text = "true"
		}
		return &Value{Span: at, Kind: Bool, Bool: b, Str: text}
	}
	integer := func(n int64) *Value { return &Value{Span: at, Kind: Int, Int: n, Str: pyStr(n)} }
	list := &Value{Span: at, Kind: List}
	add := func(v *Value) { list.Items = append(list.Items, v) }
	t := &s.Train
	zero := func(where string) {
		if t.ZeroGrad.At.V != where {
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
			add(mapping(pair(HeadEmpty, &Value{Span: at}), pair("every", integer(t.EmptyCache.Every.V))))
		} else {
			add(word(HeadEmpty))
		}
	}
	forward := mapping(pair(HeadForward, mapping(pair("model", word("model")))), pair("name", word("out")))
	if s.Mode.V != "train" {
		empty("step_start")
		add(word(HeadBatch))
		add(forward)
		empty("step_end")
		return list
	}
	empty("step_start")
	micro := t.GradAccumulation.V
	outer := list
	if micro > 1 { // the statements of a microbatch, repeated
		zero("before_forward")
		zero("before_backward")
		list = &Value{Span: at, Kind: List}
	}
	add(word(HeadBatch))
	if micro == 1 {
		zero("before_forward")
	}
	add(forward)
	for i, e := range listOf(loss) {
		if i == len(listOf(loss))-1 && e.Get("name") == nil {
			e = named(e, word, pair)
		}
		add(e)
	}
	if micro > 1 {
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
	if micro > 1 {
		group := mapping(pair(HeadLayers, list), pair("repeat", integer(micro)))
		list = outer
		add(group)
	}
	if t.ClipGradNorm.Set {
		add(mapping(pair(HeadClipNorm, &Value{Span: at, Kind: Float, Float: t.ClipGradNorm.V, Str: pyStr(t.ClipGradNorm.V)})))
	}
	if t.ClipGradValue.Set {
		add(mapping(pair(HeadClipValue, &Value{Span: at, Kind: Float, Float: t.ClipGradValue.V, Str: pyStr(t.ClipGradValue.V)})))
	}
	add(word(HeadOptimizer))
	zero("after_step")
	empty("step_end")
	return list
}

// named gives an entry the name loss.
func named(e *Value, word func(string) *Value, pair func(string, *Value) Pair) *Value {
	n := &Value{Span: e.Span, Kind: Map}
	if e.Kind == Map {
		n.Pairs = append(n.Pairs, e.Pairs...)
	} else {
		n.Pairs = append(n.Pairs, Pair{e, &Value{Span: e.Span}})
	}
	n.Pairs = append(n.Pairs, pair("name", word("loss")))
	return n
}
