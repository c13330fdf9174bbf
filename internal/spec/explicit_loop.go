package spec

import (
	"slices"
	"strconv"
)

// LabelInputs are the inputs that a collator puts behind those of the tokenizer, in their
// order.
var LabelInputs = []string{"labels", "next_sentence_label", "start_positions", "end_positions"}

// explicitLoop is Explicit of a spec with a trainer: its statements in the place of the
// arguments.
func (s *Spec) explicitLoop(model, loop *Spec) ([]byte, error) {
	body := mapping()
	put := func(key string, v *Value) {
		if v != nil && v.Kind != Null {
			body.Pairs = append(body.Pairs, pair(key, v))
		}
	}
	for _, p := range s.root.Pairs {
		switch key := p.Key.Str; {
		case key == "memplan" || key == "params" || key == "trainer" || key == "train" || key == "quantize" && s.Trainer.LitGPT != nil:
		case key == "model":
			m := *model.root.Get("model").without("loss")
			for i, p := range m.Pairs {
				if p.Key.Str == "inputs" {
					m.Pairs = slices.Clone(m.Pairs)
					m.Pairs[i].Value = collated(p.Value)
				}
			}
			put(key, &m)
		case key == "peft" && s.Trainer.DisablesDropout():
			put(key, withoutDropout(s.constant(p.Value)))
		default:
			put(key, s.constant(p.Value))
		}
	}
	train := mapping(pair("batch_size", integer(s.Train.BatchSize.V)), pair("precision", word(s.Train.Precision.V)), pair("loop", word(s.Train.Loop.V)))
	if c := s.Train.Optimizer; c != nil {
		arg := mapping()
		if c.Arg != nil {
			arg = s.constant(c.Arg)
		}
		o := mapping(pair(c.Name.V, arg))
		groups := sequence()
		for _, g := range c.Groups {
			params := sequence()
			for _, p := range g.Params {
				params.Items = append(params.Items, word(p.V))
			}
			groups.Items = append(groups.Items, mapping(append([]Pair{pair("params", params)}, g.Arg.Pairs...)...))
		}
		if len(groups.Items) > 0 {
			o.Pairs = append(o.Pairs, pair(KeyGroups, groups))
		}
		train.Pairs = append(train.Pairs, pair("optimizer", o))
	}
	if v := s.Given("train.checkpoint"); v != nil {
		train.Pairs = append(train.Pairs, pair("checkpoint", s.constant(v)))
	} else if c := s.Train.Checkpoint; c != nil {
		train.Pairs = append(train.Pairs, pair("checkpoint", mapping(pair("use_reentrant", boolean(c.Reentrant.V)))))
	}
	put("train", train)
	s.explicitTechniques(put)
	program := mapping()
	for _, key := range []string{"blocks", "before", "step", "eval"} {
		if v := loop.root.Get(key); v != nil && (key != "eval" || loop.Eval != nil) {
			put(key, v)
			program.Pairs = append(program.Pairs, pair(key, v))
		}
	}
	params := model.params(body)
	for _, p := range loop.params(program).Pairs {
		if params.Get(p.Key.Str) == nil {
			params.Pairs = append(params.Pairs, p)
		}
	}
	head := mapping(pair("memplan", &Value{Kind: Int, Str: strconv.Itoa(Version1)}), pair("params", params))
	return mapping(append(head.Pairs, body.Pairs...)...).print()
}

// collated are inputs with the targets behind the others.
func collated(inputs *Value) *Value {
	out := *inputs
	out.Pairs = slices.Clone(inputs.Pairs)
	slices.SortStableFunc(out.Pairs, func(a, b Pair) int {
		return slices.Index(LabelInputs, a.Key.Str) - slices.Index(LabelInputs, b.Key.Str)
	})
	return &out
}

// explicitTechniques writes the sections that a trainer's arguments made: what is trained
// and by which optimizer, and what is quantized.
func (s *Spec) explicitTechniques(put func(string, *Value)) {
	words := func(ss []String) *Value {
		out := sequence()
		for _, x := range ss {
			out.Items = append(out.Items, word(x.V))
		}
		return out
	}
	if f := s.Freeze; f != nil && s.root.Get("freeze") == nil {
		put("freeze", mapping(pair("except", words(f.Except))))
	}
	if q := s.Quantize; q != nil && s.Trainer.LitGPT != nil {
		put("quantize", mapping(pair("bits", integer(q.Bits.V)), pair("type", word(q.Type.V)), pair("double_quant", boolean(q.Double.V)),
			pair("compute_dtype", word(q.Compute.V)), pair("bitsandbytes", word(q.Library.V)), pair("modules", words(q.Modules))))
	}
	for _, o := range s.Optimizers {
		put("optimizers", mapping(pair(o.Name.V, mapping(pair("optimizer", mapping(pair(o.V.Optimizer.Name.V, o.V.Optimizer.Arg))), pair("params", words(o.V.Params))))))
	}
}
