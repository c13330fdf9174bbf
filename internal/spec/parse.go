package spec

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
)

// Version1 is the only version of the spec language.
const Version1 = 1

// Options change what is read.
type Options struct {
	// Set overrides keys, each "path=value": a path of keys joined by dots and
	// a value in YAML.
	Set []string
	// Flags override keys as well, after Set; mistakes name the flag.
	Flags []Flag
	// Made says that the text is not the user's, but what a preset or a config.json
	// that was named stands for. Said are the paths of its keys that come from there.
	Made bool
	Said []string
	// GPUs can be named by device.gpu, beside those of the table.
	GPUs []*GPU
	// Calibrated are contexts that were measured on the user's GPUs.
	Calibrated []Calibrated
	// Params replace the defaults of params; names that the spec has not are left out.
	Params map[string]any
	// Private keeps the text of the file out of messages, as Errors has it.
	Private bool
	// Label stands for the path in messages, of text that is not the file's; "": the path.
	Label string
	// Lengths names a file whose lengths the param seq takes; "": none.
	Lengths string
	// Longest tells how long the longest batch is of samples of different lengths; nil: no
	// file of them can be read.
	Longest func(*Lengths) (int64, error)
	// Meter counts the work of expressions.
	Meter *limit.Meter
	// Own says that the text comes with memplan, and is as it should be.
	Own bool
	// Loop says that the text is the loop of a trainer, which has no model.
	Loop bool
	// Recorded says that the job is a recording, beside which there are a machine and a
	// version of PyTorch alone.
	Recorded bool
	// Keys are paths of the spec with the names by which a file of another program says
	// the same.
	Keys map[string]string
	// Origins are the places that the lines of the text come from, if it was made of
	// other files, and Notes what readers must know of that.
	Origins []Origin
	Notes   []note.Note
}

// Origin is a place in a user's file from which a line of a spec was made, or the
// flag that says it. The zero Origin is that of lines that no file says.
type Origin struct {
	Flag string
	File string
	Span
	Text string // of the line
}

// Flag is the value of one key of a spec, given by a flag of its own.
type Flag struct {
	Flag  string // how the flag was written, for messages: "--gpu=h100"
	Path  string // of the key: "device.gpu"
	Value string
	Text  bool // Value is a string as it stands, not YAML
	Drop  bool // the key is taken away, if it is there
}

// Parse reads a spec. The error, if any, is an *Errors that holds every
// mistake found in sections and expressions; names of layers and operators and
// shapes are checked later, by package graph, which adds to the same list.
func Parse(path string, text []byte, o Options) (*Spec, error) {
	blocks := o.Own && o.Params == nil && o.Meter == nil && len(o.Flags) == 0
	if blocks {
		if s := known.file(text, path); s != nil {
			return s, nil
		}
	}
	if o.Label == "" {
		o.Label = path
	}
	errs := &Errors{File: o.Label, Private: o.Private, Lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), Origins: o.Origins, Keys: o.Keys}
	for _, n := range o.Notes {
		if n.Code == note.FileIgnored && n.Place.Line > 0 && !o.Private && len(errs.Ignored) < maxErrors {
			errs.Ignored = append(errs.Ignored, n)
		}
	}
	var root *Value
	kept := false
	if o.Own {
		root, kept = readOwn(text, errs)
	} else {
		root = readYAML(text, errs)
	}
	if root == nil {
		return nil, errs.Err()
	}
	if root.Kind != Map {
		errs.Addf(root.Span, "a spec is a mapping with the keys memplan, model, train, ...; not %s", root.Describe())
		return nil, errs.Err()
	}
	for _, s := range o.Set {
		path, text, ok := strings.Cut(s, "=")
		at := errs.override("--set " + s)
		if !ok || path == "" {
			errs.Addf(at, "must be key=value, such as train.batch_size=8")
			continue
		}
		set(root, path, text, at, errs)
	}
	for _, f := range o.Flags {
		if f.Drop {
			root.drop(strings.Split(f.Path, "."))
			continue
		}
		text := f.Value
		if f.Text {
			text = strconv.Quote(text)
		}
		set(root, f.Path, text, errs.override(f.Flag), errs)
	}
	if o.Lengths != "" {
		giveLengths(root, o.Lengths, errs.override("--lengths "+o.Lengths), errs)
	}
	gatherParallel(root, errs)
	s := &Spec{Path: path, Errs: errs, GPUs: o.GPUs, Calibrated: o.Calibrated, root: root, made: o.Made, said: o.Said, loop: o.Loop, recorded: o.Recorded, notes: o.Notes}
	d := &decoder{errs: errs, root: root, kept: kept, release: releaseOf(root)}
	d.env = &paramEnv{}
	s.takeLengths(d, o.Longest)
	params := d.params(root.Get("params"), o.Params, o.Meter)
	s.Env, d.env = params, params
	d.section(root, s, "spec")
	s.check(d)
	if blocks {
		known.keep(text, s)
	}
	return s, errs.Err()
}

// Given returns what the file has under a path of keys, nil if nothing.
func (s *Spec) Given(path string) *Value {
	v := s.root
	parts := strings.Split(path, ".")
	for i, k := range parts {
		if last := v.Get(strings.Join(parts[i:], ".")); last != nil {
			v = last
			break
		}
		v = v.Get(k)
	}
	if v != nil && v.Kind == Null {
		return nil
	}
	return v
}

// Assumed reports whether the key of a path was not given: it is not there,
// or only in a text that memplan made.
func (s *Spec) Assumed(path string) bool {
	path = s.trainerPath(path)
	v := s.Given(path)
	switch {
	case v == nil:
		return true
	case v.Line < 0 || !s.made: // of the command line
		return false
	}
	return !slices.Contains(s.said, path)
}

// ParamAssumed is Assumed of a param of the model's preset, or, without one, of the
// spec.
func (s *Spec) ParamAssumed(name string) bool {
	if s.Model == nil || !s.Model.Preset.Set && !s.Model.HF.Set {
		return s.Assumed("params." + name)
	}
	if _, ok := s.Trainer.OwnParams(s.Model.Preset.V)[name]; ok { // a default of the trainer's program
		return false
	}
	with := s.Given("model.with." + name)
	if outer := soleName(with); outer != "" {
		return s.Assumed("params." + outer)
	}
	return with == nil || s.Assumed("model.with."+name)
}

// Origin is the place that decides a value: where it is the name of a param alone,
// that of the param.
func (s *Spec) Origin(v *Value) Span { return originIn(s.root, v) }

func originIn(root, v *Value) Span {
	if p := root.Get("params").Get(soleName(v)); p != nil {
		return p.Span
	}
	return v.Span
}

// ParamOf names the param whose value another one has by its expression; "" if it
// has one of its own.
func (s *Spec) ParamOf(name string) string { return soleName(s.root.Get("params").Get(name)) }

// soleName is the name that an expression consists of, "" of others.
func soleName(v *Value) string {
	if v == nil || v.Kind != Str {
		return ""
	}
	name := strings.TrimSuffix(strings.TrimPrefix(v.Str, "${"), "}")
	if len(name) != len(v.Str)-3 || !IsVariable(name) {
		return ""
	}
	return name
}

// IdleParams lists the params that nothing in the file refers to.
func (s *Spec) IdleParams() []String {
	used := s.root.Names()
	var out []String
	if params := s.root.Get("params"); params != nil {
		for _, p := range params.Pairs {
			if !used[p.Key.Str] {
				out = append(out, String{p.Key.Str, p.Key.Span, true})
			}
		}
	}
	return out
}

// Names are the names that the expressions of a tree use, and its words, which may be names.
func (v *Value) Names() map[string]bool {
	used := map[string]bool{}
	var walk func(v *Value)
	walk = func(v *Value) {
		if v.Kind == Str && (v.HasExpr() || IsTree(v.Str) || IsName(v.Str)) {
			eachWord(v.Str, func(w string) { used[w] = true })
		}
		for _, it := range v.Items {
			walk(it)
		}
		for _, p := range v.Pairs {
			walk(p.Value)
		}
	}
	walk(v)
	return used
}

// ParamNames lists the spec's params.
func (s *Spec) ParamNames() []string {
	return slices.Clone(s.Env.(*paramEnv).names)
}

// check looks at what single fields cannot see.
func (s *Spec) check(d *decoder) {
	top := Span{Pos: Pos{1, 1}, Len: 1}
	switch {
	case s.root.Get("memplan") == nil:
		s.Errs.Contained(func() { s.Errs.Addf(top, "a spec begins with \"memplan: 1\", the version of the language") })
	case s.Version.Set && s.Version.V != Version1:
		s.Errs.Addf(s.Version.At, "version %d of the spec language is unknown; this memplan reads version 1", s.Version.V)
	}
	model, models := s.root.Get("model"), s.root.Get("models")
	switch {
	case s.recorded:
		s.recording()
	case model != nil && !model.absent() || s.loop:
	case models == nil:
		s.Errs.Addf(top, "a spec needs model (or models)")
	case models.Kind == Map && len(models.Pairs) == 0:
		s.Errs.Addf(models.Span, "models must name a model or more, not none")
	}
	if v := s.root.Get("step"); v != nil && (v.Kind == Null || (v.Kind == List && len(v.Items) == 0)) {
		s.Errs.Addf(v.Span, "step needs statements, such as {forward: {model: model}}; without step, the keys of train make one")
	}
	s.Errs.checkMemory(s.Device.Memory)
	s.trainer(d)
	s.prepared(d)
	if s.Model != nil && len(s.Models) > 0 {
		s.Errs.Addf(s.Models[0].Name.At, "model and models exclude each other")
	}
	if v := s.root.Get("optimizers"); v != nil && s.Train.Optimizer != nil {
		s.Errs.Addf(s.Train.Optimizer.Name.At, "train.optimizer and optimizers exclude each other")
	}
}

// recording refuses keys that say what a recording does: it says so itself.
func (s *Spec) recording() {
	for _, p := range s.root.Pairs {
		switch p.Key.Str {
		case "memplan", "name", "device", "torch":
			continue
		case "train":
			if p.Value.Kind == Map && len(p.Value.Pairs) == 1 && p.Value.Pairs[0].Key.Str == "batch_size" {
				continue
			}
		}
		s.Errs.Addf(p.Value.Span, "%s: a recording has its own model and steps; device, torch and, of recordings with several sizes of the batch, train.batch_size may be set", p.Key.Str)
	}
}

// paramEnv holds the values of params.
type paramEnv struct {
	names []string
	vals  map[string]any
	meter *limit.Meter
	asked int // for suggestions
}

func (p *paramEnv) Lookup(name string) (any, bool) { v, ok := p.vals[name]; return v, ok }
func (p *paramEnv) Meter() *limit.Meter            { return p.meter }

// Names is for suggestions: there are none once there are more mistakes than are
// told.
func (p *paramEnv) Names() []string {
	if p.asked++; p.asked > maxErrors {
		return nil
	}
	return slices.Clone(p.names)
}

// params evaluates a params section; later ones may use earlier ones.
func (d *decoder) params(v *Value, given map[string]any, m *limit.Meter) *paramEnv {
	env := &paramEnv{vals: map[string]any{}, meter: m}
	if v == nil || v.Kind == Null {
		return env
	}
	if v.Kind != Map {
		d.errs.Addf(v.Span, "params must be a mapping from names to values, not %s", v.Describe())
		return env
	}
	for _, p := range v.Pairs {
		if !IsVariable(p.Key.Str) {
			d.errs.Addf(p.Key.Span, "name must be an identifier that is no keyword of Python, not %q", p.Key.Str)
			continue
		}
		x, err := p.Value.Eval(env)
		if g, ok := given[p.Key.Str]; ok {
			x, err = g, nil
		}
		if err != nil {
			d.errs.Contained(func() { d.errs.AddErr(p.Value.Span, err) })
			x = Invalid{}
		}
		env.names = append(env.names, p.Key.Str)
		env.vals[p.Key.Str] = x
	}
	return env
}

// override registers an override and returns the place that its mistakes have.
func (e *Errors) override(shown string) Span {
	e.Overrides = append(e.Overrides, shown)
	return Span{Pos: Pos{-len(e.Overrides), 1}, Len: 1}
}

// set overrides a key, or with a trainer the arguments that say the same.
func set(root *Value, path, text string, at Span, errs *Errors) {
	settings, ok := trainerSettings(root, path, text)
	if !ok {
		errs.Addf(at, "the trainer has no argument for %s: %s; --set trainer.hf.NAME=VALUE sets one of TrainingArguments", path, text)
		return
	}
	for _, x := range settings {
		override(root, x.Path, x.Value, at, errs)
	}
}

// override replaces or adds one key of the tree.
func override(root *Value, path, text string, at Span, errs *Errors) {
	sub := &Errors{}
	val := readYAML([]byte(text), sub)
	if strings.TrimSpace(text) == "" {
		val, sub = &Value{Kind: Str}, &Errors{}
	}
	if len(sub.List) > 0 || val == nil {
		errs.Addf(at, "%s", sub.List[0].Msg)
		return
	}
	val.moveTo(at)
	v := root
	parts := strings.Split(path, ".")
	if params := root.Get("params"); len(parts) == 2 && parts[0] == "params" && params.Get(parts[1]) == nil {
		errs.Unknown(at, "param", parts[1], params.keys())
		return
	}
	for i, k := range parts {
		if v.Kind != Map {
			errs.Addf(at, "%s is not a mapping", strings.Join(parts[:i], "."))
			return
		}
		if last := strings.Join(parts[i:], "."); v.Get(last) != nil { // an argument such as train.max_norm
			v.put(&Value{Span: at, Kind: Str, Str: last}, val)
			return
		}
		next := v.Get(k)
		if next == nil || (i < len(parts)-1 && next.Kind == Null) {
			next = &Value{Span: at, Kind: Map}
			v.put(&Value{Span: at, Kind: Str, Str: k}, next)
		}
		if i == len(parts)-1 {
			v.put(&Value{Span: at, Kind: Str, Str: k}, val)
			return
		}
		v = next
	}
}

// keys lists the keys of a mapping.
func (v *Value) keys() []string {
	var out []string
	if v != nil {
		for _, p := range v.Pairs {
			out = append(out, p.Key.Str)
		}
	}
	return out
}

// put sets a key of a mapping.
func (v *Value) put(key, val *Value) {
	for i := range v.Pairs {
		if v.Pairs[i].Key.Str == key.Str {
			v.Pairs[i].Value = val
			return
		}
	}
	v.Pairs = append(v.Pairs, Pair{key, val})
}

// drop takes away the key of a path.
func (v *Value) drop(path []string) {
	if len(path) > 1 {
		if sub := v.Get(path[0]); sub != nil {
			sub.drop(path[1:])
		}
		return
	}
	v.Pairs = slices.DeleteFunc(v.Pairs, func(p Pair) bool { return p.Key.Str == path[0] })
}

// moveTo gives a tree one place.
func (v *Value) moveTo(s Span) {
	v.Span = s
	if v.expr != nil {
		v.expr.inline = false
	}
	for _, it := range v.Items {
		it.moveTo(s)
	}
	for _, p := range v.Pairs {
		p.Key.Span = s
		p.Value.moveTo(s)
	}
}

// NotModelled lists what the spec asks for and memplan does not model yet, as
// "key: what; worth of the figures", in the order of the file's sections.
func (s *Spec) NotModelled() []note.Note {
	out := slices.DeleteFunc(slices.Clone(s.notes), func(n note.Note) bool { return !n.Code.LeftOut })
	s.later(reflect.ValueOf(s).Elem(), s.root, "", &out)
	return out
}

// Warnings lists what readers must know of how the spec was made.
func (s *Spec) Warnings() []note.Note {
	return slices.DeleteFunc(slices.Clone(s.notes), func(n note.Note) bool { return n.Code.LeftOut })
}

// later walks the fields with a `later` tag whose key the file has.
func (s *Spec) later(rv reflect.Value, v *Value, prefix string, out *[]note.Note) {
	fields := fieldsOf(rv.Type())
	for _, key := range fields.names {
		sub := v.Get(key)
		if sub == nil || sub.Kind == Null {
			continue
		}
		if m, ok := rv.Addr().Interface().(*Model); ok && key == "attn_implementation" && m.HF.Set {
			continue // it is the param attn
		}
		if what := rv.Type().FieldByIndex(fields.index[key]).Tag.Get("later"); what != "" {
			modelled := rv.Type().FieldByIndex(fields.index[key]).Tag.Get("modelled")
			if value, asks := s.asks(sub); asks && (modelled == "" || value != modelled) && !(modelled == keyRanks && sub.Kind == Int) {
				code := note.Asked
				if prefix+key == compileKey {
					code = note.Compiled
				}
				*out = append(*out, code.New("%s: %s%s", prefix+key, what, worthOf(prefix+key, value)).Of(prefix+key))
			}
			continue
		}
		s.laterIn(rv.FieldByIndex(fields.index[key]), sub, prefix+key+".", out)
	}
}

// asks reports whether a value asks for something, which null and false do not, and
// how it reads.
func (s *Spec) asks(v *Value) (value string, ok bool) {
	if v.Kind == List || v.Kind == Map {
		return "", true
	}
	x, err := v.Eval(s.Env)
	if err != nil {
		return "", true
	}
	return pyStr(x), x != nil && x != false
}

// laterIn looks into the sections below a key: a struct, or those of a mapping
// from names.
func (s *Spec) laterIn(f reflect.Value, v *Value, prefix string, out *[]note.Note) {
	if f.Kind() == reflect.Pointer {
		if f.IsNil() {
			return
		}
		f = f.Elem()
	}
	switch {
	case f.Kind() == reflect.Struct && !isScalar(f.Type()) && f.Type() != reflect.TypeFor[Value]():
		s.later(f, v, prefix, out)
	case f.Kind() == reflect.Slice:
		for i := range f.Len() {
			if n := f.Index(i); n.Kind() == reflect.Pointer && n.Elem().FieldByName("V").IsValid() && v.Kind == Map {
				name := n.Elem().FieldByName("Name").Interface().(String).V
				s.laterIn(n.Elem().FieldByName("V"), v.Get(name), prefix+name+".", out)
			}
		}
	}
}
