package spec

import (
	"reflect"
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
		case key == "memplan" || key == "params" || key == "trainer" || key == "train" || key == "data" || key == "quantize" && s.Trainer.LitGPT != nil:
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
			groups.Items = append(groups.Items, mapping(append([]Pair{pair("params", listed(g.Params))}, g.Arg.Pairs...)...))
		}
		if len(groups.Items) > 0 {
			o.Pairs = append(o.Pairs, pair(KeyGroups, groups))
		}
		train.Pairs = append(train.Pairs, pair("optimizer", o))
	}
	if v := s.Given("train.checkpoint"); v != nil {
		train.Pairs = append(train.Pairs, pair("checkpoint", s.constant(v)))
	} else if c := s.Train.Checkpoint; c != nil {
		train.Pairs = append(train.Pairs, pair("checkpoint", c.value()))
	}
	for _, flag := range []struct {
		key string
		on  bool
	}{{"deterministic", s.Train.Deterministic.V}, {"cudnn_benchmark", s.Train.CudnnBenchmark.V}} {
		if flag.on {
			train.Pairs = append(train.Pairs, pair(flag.key, boolean(true)))
		}
	}
	if len(s.Train.SDPA) > 0 {
		train.Pairs = append(train.Pairs, pair("sdpa", listed(s.Train.SDPA)))
	}
	if v := s.Given("train.steps"); v != nil {
		train.Pairs = append(train.Pairs, pair("steps", s.constant(v)))
	}
	put("train", train)
	put("data", s.explicitData())
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
		switch was := params.Get(p.Key.Str); {
		case was == nil:
			params.Pairs = append(params.Pairs, p)
		case !reflect.DeepEqual(was, p.Value):
			s.Errs.Addf(s.Trainer.At, "the loop of trainer: %s has a param %s of another value than the model's; the spec has no form without trainer, and is not written out", s.Trainer.Key(), p.Key.Str)
			return nil, s.Errs.Err()
		}
	}
	head := mapping(pair("memplan", &Value{Kind: Int, Str: strconv.Itoa(Version1)}), pair("params", params))
	return mapping(append(head.Pairs, body.Pairs...)...).print()
}

// value is the section.
func (c *Checkpoint) value() *Value {
	out := mapping(pair("use_reentrant", boolean(c.Reentrant.V)))
	words := func(key string, ss []String) {
		if len(ss) > 0 {
			out.Pairs = append(out.Pairs, pair(key, listed(ss)))
		}
	}
	words("modules", c.Modules)
	if c.Every.Set {
		out.Pairs = append(out.Pairs, pair("every", integer(c.Every.V)))
	}
	words("save", c.Save)
	words("alternate", c.Alternate)
	return out
}

// explicitData is the section data with what a trainer's arguments say of it.
func (s *Spec) explicitData() *Value {
	out := mapping()
	if v := s.root.Get("data"); v != nil && v.Kind == Map {
		out = s.constant(v)
	}
	if s.Data.Input.V == "rebind" && !s.Data.Input.Set {
		out.Pairs = append(out.Pairs, pair("input", word(s.Data.Input.V)))
	}
	if l := s.Data.Loader; l != nil && out.Get("loader") == nil {
		loader := mapping(pair("num_workers", integer(l.NumWorkers.V)), pair("pin_memory", boolean(l.PinMemory.V)), pair("persistent_workers", boolean(l.PersistentWorkers.V)))
		if l.PrefetchFactor.Set {
			loader.Pairs = append(loader.Pairs, pair("prefetch_factor", integer(l.PrefetchFactor.V)))
		}
		out.Pairs = append(out.Pairs, pair("loader", loader))
	}
	if len(out.Pairs) == 0 {
		return nil
	}
	return out
}

// listed is a list of words.
func listed(ss []String) *Value {
	out := sequence()
	for _, x := range ss {
		out.Items = append(out.Items, word(x.V))
	}
	return out
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
	if f := s.Freeze; f != nil && s.root.Get("freeze") == nil {
		put("freeze", mapping(pair("except", listed(f.Except))))
	}
	if q := s.Quantize; q != nil && s.Trainer.LitGPT != nil {
		put("quantize", mapping(pair("bits", integer(q.Bits.V)), pair("type", word(q.Type.V)), pair("double_quant", boolean(q.Double.V)),
			pair("compute_dtype", word(q.Compute.V)), pair("bitsandbytes", word(q.Library.V)), pair("modules", listed(q.Modules))))
	}
	for _, o := range s.Optimizers {
		put("optimizers", mapping(pair(o.Name.V, mapping(pair("optimizer", mapping(pair(o.V.Optimizer.Name.V, o.V.Optimizer.Arg))), pair("params", listed(o.V.Params))))))
	}
}
