package spec

// Lengths are those of a data set's samples, which a param such as seq takes: each
// batch is as long as its longest sample.
type Lengths struct {
	At       Span    `yaml:"-"`
	Key      string  `yaml:"-"` // path of the param's key
	File     String  `yaml:"lengths" doc:"file with one length a line, or a histogram: a length and how many samples have it"`
	Max      Integer `yaml:"max" min:"1" doc:"longer samples are cut to it"`
	Multiple Integer `yaml:"pad_to_multiple_of" min:"1" default:"1" doc:"batches are padded to a multiple of it"`
	Grouped  Boolean `yaml:"group_by_length" doc:"samples of like lengths come in one batch, as transformers' LengthGroupedSampler has it"`
	Steps    Integer `yaml:"steps" min:"1" max:"100000" default:"200" doc:"steps of a run of which the report says how likely it runs out of memory"`
}

// giveLengths has the param seq take the lengths of a file. A length that it was given is
// the greatest then.
func giveLengths(root *Value, file string, at Span, errs *Errors) {
	params := root.Get("params")
	if params.Get("seq") == nil {
		model := root.Get("model")
		if model == nil || model.Kind != Map || model.Get("hf") == nil && model.Get("preset") == nil {
			errs.Addf(at, "the spec has no param seq, which lengths are of")
			return
		}
		if params = model.Get("with"); params == nil || params.Kind != Map {
			params = &Value{Span: at, Kind: Map}
			model.put(&Value{Span: at, Kind: Str, Str: "with"}, params)
		}
	}
	seq := params.Get("seq")
	if seq == nil || seq.Kind != Map {
		was := seq
		seq = &Value{Span: at, Kind: Map}
		if was != nil && was.Kind == Int {
			seq.put(&Value{Span: at, Kind: Str, Str: "max"}, was)
		}
		params.put(&Value{Span: at, Kind: Str, Str: "seq"}, seq)
	}
	seq.put(&Value{Span: at, Kind: Str, Str: "lengths"}, &Value{Span: at, Kind: Str, Str: file})
}

// takeLengths puts the longest batch's length in the place of the mapping with lengths that
// a param has.
func (s *Spec) takeLengths(d *decoder, longest func(*Lengths) (int64, error)) {
	take := func(params *Value, path string) {
		if params == nil || params.Kind != Map {
			return
		}
		for i := range params.Pairs {
			p := &params.Pairs[i]
			if p.Value.Get("lengths") == nil {
				continue
			}
			if s.Lengths != nil {
				s.Errs.Addf(p.Value.Span, "%s has lengths, and so has %s; one param may", path+p.Key.Str, s.Lengths.Key)
				continue
			}
			l := &Lengths{At: p.Value.Span, Key: path + p.Key.Str}
			s.Lengths = l
			d.section(p.Value, l, "lengths")
			n := int64(1)
			if longest == nil {
				s.Errs.Addf(l.File.At, "no files can be read here")
			} else if m, err := longest(l); err != nil {
				s.Errs.Addf(l.File.At, "%v", err)
			} else {
				n = m
			}
			p.Value = &Value{Span: p.Value.Span, Kind: Int, Int: n}
		}
	}
	take(s.root.Get("params"), "params.")
	take(s.root.Get("model").Get("with"), "model.with.")
	for _, m := range pairs(s.root.Get("models")) {
		take(m.Value.Get("with"), "models."+m.Key.Str+".with.")
	}
}

func pairs(v *Value) []Pair {
	if v == nil {
		return nil
	}
	return v.Pairs
}
