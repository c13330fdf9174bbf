package importer

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/hub"
	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
)

// File is a file that the user named.
type File struct {
	Name string
	Text []byte
}

// Options are what is said beside the files.
type Options struct {
	Set       []string                          // KEY=VALUE: of the file's own keys, or of the spec
	Print     bool                              // those of the spec are written into it
	Processes int64                             // on GPUs, as the launch command has it; 0: not given
	Lengths   bool                              // of the samples are given
	Precision string                            // as train.precision has it; "": that of the file
	ReadFile  func(name string) ([]byte, error) // that the files name, by paths from the folder of the job's file
	Config    func(model string) []byte         // the config.json of a model; nil: not known
}

// Job is what files mean as a spec.
type Job struct {
	Format  *Format
	Text    []byte            // the spec
	Origins []spec.Origin     // of its lines
	Said    []string          // keys of the spec that the files give
	Set     []string          // overrides of keys of the spec, which are for spec.Parse
	Notes   []note.Note       // what is assumed, and what is not modelled
	Keys    map[string]string // keys of the spec with the file's key that has the same value
}

// MisuseError says that files are no job, or not one.
type MisuseError struct{ Text string }

func (e *MisuseError) Error() string { return e.Text }

func misuse(format string, args ...any) error { return &MisuseError{fmt.Sprintf(format, args...)} }

// file is a file that was read.
type file struct {
	name   string
	doc    *spec.Document
	format *Format
}

// job is a job while it is read.
type job struct {
	file
	opts   Options
	out    node
	beside map[*Format]*file // files that come with the job's
	left   []leftOut
	keys   map[string]string
	named  string // the model
	notes  []note.Note
	world  int64 // processes
	spread sharding
	pairs  bool // a sample of the file is two of the spec: a preferred and a rejected one

	ignored []ignored
}

// ignored is a key that the program does not know, and ignores.
type ignored struct {
	key  *spec.Value
	text string
}

// maxNear is for how many unknown keys the nearest name is looked for, which costs
// time.
const maxNear = 50

// leftOut are keys that the spec does not have.
type leftOut struct{ why, key string }

// Read makes the spec that files mean. The error, if any, is a *MisuseError or a
// *spec.Errors with the places of the mistakes.
func Read(files []File, o Options) (*Job, error) {
	j := &job{opts: o, beside: map[*Format]*file{}, keys: map[string]string{}}
	for _, f := range files {
		if err := j.add(f); err != nil {
			return nil, err
		}
	}
	if j.format == nil {
		return nil, misuse("%s comes with the file of a job, such as an Axolotl YAML; give that, too", files[0].Name)
	}
	ofSpec := j.override()
	j.out.put("memplan", "1", spec.Origin{})
	j.out.put("name", text(strings.TrimSuffix(filepath.Base(j.name), filepath.Ext(j.name))), spec.Origin{})
	if j.format.other == nil || spec.Try(func() { j.format.other(j) }) {
		j.parts(j.table, func() { j.format.read(j) }, j.launch)
	}
	if err := j.err(); err != nil {
		return nil, err
	}
	if j.opts.Print {
		ofSpec = slices.DeleteFunc(ofSpec, j.write)
	}
	made := &Job{Format: j.format, Set: ofSpec, Notes: j.notes, Keys: j.keys}
	for argument, name := range j.format.Names {
		made.Keys["trainer."+j.format.Trainer+"."+argument] = name
	}
	if j.pairs { // twice as many samples
		delete(made.Keys, "params.batch")
		delete(made.Keys, "trainer.hf.per_device_train_batch_size")
	}
	made.Text, made.Origins = j.print()
	j.out.said("", &made.Said)
	return made, nil
}

// add reads one file.
func (j *job) add(f File) error {
	if isMegatronScript(f.Text) {
		f.Text = megatronScript(f.Text)
	}
	d := spec.ReadPlain(f.Name, f.Text, nil)
	if d.Root == nil {
		return d.Errs.Err()
	}
	format, err := formatOf(d.Root)
	if unwritable(d.Root, d.Errs); d.Errs.Err() != nil {
		return d.Errs
	}
	switch {
	case err != nil:
		return misuse("%s: %v", f.Name, err)
	case format == nil:
		return misuse("%s: the file is of no format that memplan reads: %s", f.Name, SignsOf())
	case format.Beside && j.beside[format] != nil:
		return misuse("%s and %s are both %s; give one", j.beside[format].name, f.Name, format.Title)
	case format.Beside:
		j.beside[format] = &file{f.Name, d, format}
	case j.format != nil:
		return misuse("%s and %s are both files of jobs; give one", j.name, f.Name)
	default:
		j.file = file{f.Name, d, format}
		precision, err := j.precision()
		if err != nil {
			return err
		}
		var own []string
		for _, s := range slices.Concat(precision, j.opts.Set) {
			if k, _, ok := strings.Cut(s, "="); ok && j.owns(k) {
				own = append(own, s)
			}
		}
		if len(own) > 0 {
			j.doc = spec.ReadPlain(f.Name, f.Text, own)
		}
	}
	return nil
}

// precisions are the values of --precision that files have keys for.
var precisions = []struct{ name, bf16, fp16 string }{{"fp32", "false", "false"}, {"amp-bf16", "true", "false"}, {"amp-fp16", "false", "true"}}

// precision is what --precision sets in the file: the program says in which type the
// weights are then.
func (j *job) precision() ([]string, error) {
	if j.opts.Precision == "" {
		return nil, nil
	}
	var names []string
	for _, p := range precisions {
		if p.name == j.opts.Precision {
			return []string{"bf16=" + p.bf16, "fp16=" + p.fp16}, nil
		}
		names = append(names, p.name)
	}
	return nil, misuse("--precision %s: a file of %s has keys for %s", j.opts.Precision, j.format.Title, strings.Join(names, ", "))
}

// maxKey bounds the characters of a key: YAML in one line has no longer ones.
const maxKey = 200

// maxBraces bounds how often ${ may be in a string: each is two expressions or parts of a
// string of a spec, which has at most 256.
const maxBraces = 100

// unwritable reports what no spec can say.
func unwritable(v *spec.Value, errs *spec.Errors) {
	if n := strings.Count(v.Str, "${"); v.Kind == spec.Str && n > maxBraces {
		errs.Addf(v.Span, "a string with ${ %d times; at most %d are read", n, maxBraces)
	}
	for _, p := range v.Pairs {
		if len(p.Key.Str) > maxKey {
			errs.Addf(p.Key.Span, "key of %d characters; at most %d are read", len(p.Key.Str), maxKey)
		}
		unwritable(p.Value, errs)
	}
	for _, it := range v.Items {
		unwritable(it, errs)
	}
}

// owns reports whether an override is of a key of the file rather than of the spec.
func (j *job) owns(path string) bool {
	k, _, below := strings.Cut(path, ".")
	if v := j.doc.Root.Get(k); below && slices.Contains(sections, k) && (v == nil || v.Kind != spec.Map) {
		return false
	}
	return j.format.lookup(k) != nil || j.doc.Root.Get(k) != nil || !below && !ofSpec(k)
}

// ofSpec reports whether a spec has a key of that name at the top.
func ofSpec(name string) bool {
	return slices.ContainsFunc(spec.Keys()["spec"], func(k spec.Key) bool { return k.Name == name })
}

// write sets a key of the spec that is printed, as Set has it. It reports whether the spec
// may have such a key.
func (j *job) write(set string) bool {
	k, v, ok := strings.Cut(set, "=")
	section, _, deep := strings.Cut(k, ".")
	if ok && deep && slices.Contains(sections, section) {
		j.out.put(k, v, spec.Origin{})
		return true
	}
	return false
}

// override lists the overrides that are of the spec.
func (j *job) override() []string {
	return slices.DeleteFunc(slices.Clone(j.opts.Set), func(s string) bool {
		k, _, ok := strings.Cut(s, "=")
		return ok && j.owns(k)
	})
}

// parts does one after the other. A mistake stops one of them, so that those of the
// others are found, too.
func (j *job) parts(list ...func()) {
	for _, part := range list {
		spec.Try(part)
	}
}

// err is the mistakes of the first file that has some. Keys that its program ignores
// may be what is wrong.
func (j *job) err() error {
	if err := j.doc.Errs.Err(); err != nil {
		for _, i := range j.ignored {
			j.doc.Errs.Addf(i.key.Span, "%s", i.text)
		}
		return err
	}
	for _, f := range Formats() {
		if b := j.beside[f]; b != nil {
			if err := b.doc.Errs.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fail reports a mistake at a value, or where the file begins if it is nil, and stops.
func (f *file) fail(v *spec.Value, format string, args ...any) {
	if v == nil {
		v = f.doc.Root
	}
	f.doc.Errs.Failf(v.Span, format, args...)
}

// from is the place of a value.
func (f *file) from(v *spec.Value) spec.Origin {
	o := spec.Origin{File: f.name, Span: v.Span}
	if v.Line < 0 {
		o.Flag = f.doc.Errs.Overrides[-v.Line-1]
	} else if v.Line <= len(f.doc.Errs.Lines) {
		o.Text = f.doc.Errs.Lines[v.Line-1]
	}
	return o
}

// table does what the rows of the format's keys say.
func (j *job) table() {
	for _, p := range j.doc.Root.Pairs {
		j.row(p.Key, p.Value)
	}
}

func (j *job) row(key, v *spec.Value) {
	name := key.Str
	k := j.format.lookup(name)
	at := v
	if v.Kind == spec.List || v.Kind == spec.Map { // which may begin on another line
		at = key
	}
	switch {
	case k == nil && j.format.passes(name):
		if v.Kind != spec.Null {
			j.set("trainer."+j.format.Trainer+"."+name, name, v)
		}
	case k == nil && j.format.Ignores && key.Line > 0: // not of the command line
		text := fmt.Sprintf("%s: %s does not know the key, and ignores it", name, j.format.Title)
		if len(j.ignored) < maxNear {
			if n := nearest.To(name, j.format.names()); n != "" {
				text += fmt.Sprintf("; did you mean %q?", n)
			}
		}
		j.ignored = append(j.ignored, ignored{key, text})
		j.notes = append(j.notes, j.at(note.FileIgnored.New("%s", text), key))
	case k == nil:
		j.doc.Errs.Unknown(key.Span, "key of "+j.format.Title, name, j.format.names())
	case k.effect == sets && v.Kind != spec.Null:
		j.set(k.text, name, v)
	case k.effect == none:
		j.leave(k.text, name)
	case k.effect == asks && given(v) && !j.format.byDefault(name, v):
		j.doubt(at, "%s: %s", name, k.text)
	}
}

// table does what the rows of a table say of a mapping that comes with the job's file,
// whose keys may have a prefix. Code of the format does what they decide.
func (f *file) table(j *job, v *spec.Value, format *Format, prefix string) {
	for _, p := range v.Pairs {
		name := strings.TrimPrefix(p.Key.Str, prefix)
		switch k := format.lookup(name); {
		case k == nil:
			f.doc.Errs.Unknown(p.Key.Span, "key of "+format.Title, p.Key.Str, format.names())
		case k.effect == none && prefix != "":
			j.leave(k.text, format.Name+"."+p.Key.Str)
		case k.effect == none:
			j.leave(k.text, p.Key.Str)
		case k.effect == asks && given(p.Value) && !format.byDefault(name, p.Value):
			f.doubt(j, p.Value, "%s: %s", p.Key.Str, k.text)
		}
	}
}

// byDefault reports a value by which a key that is not modelled asks for nothing.
func (f *Format) byDefault(name string, v *spec.Value) bool {
	return slices.Contains(strings.Fields(f.Defaults[name]), v.Str)
}

// set gives a key of the spec the value of the file's key.
func (j *job) set(path, key string, v *spec.Value) *node {
	j.keys[path] = key
	text := flow(v)
	if j.format.Coerces && v.Kind == spec.Str {
		if n := number.FindStringSubmatch(v.Str); n != nil {
			if f, err := strconv.ParseFloat(v.Str, 64); err == nil && math.Abs(f) < math.MaxInt64 {
				text = n[1] + n[2]
			}
		}
	}
	return j.out.put(path, text, j.from(v))
}

// number is a string that pydantic takes for a number: its sign, and the rest without
// leading zeros.
var number = regexp.MustCompile(`^([+-]?)0*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$`)

// put gives a key of the spec a value that follows from one of the file; nil: from
// the program's defaults.
func (j *job) put(path, text string, v *spec.Value) *node {
	if v == nil {
		return j.out.put(path, text, spec.Origin{})
	}
	return j.out.put(path, text, j.from(v))
}

// leave notes that the spec does not have a key.
func (j *job) leave(why, key string) { j.left = append(j.left, leftOut{why, key}) }

// at is a note with the place of a value.
func (f *file) at(n note.Note, v *spec.Value) note.Note {
	if v != nil && v.Line > 0 {
		n.Place = note.Place{File: f.name, Line: v.Line, Col: v.Col}
	}
	return n
}

// doubt notes that a value asks for something that is not modelled.
func (f *file) doubt(j *job, v *spec.Value, format string, args ...any) {
	j.notes = append(j.notes, f.at(note.Asked.New(format, args...), v))
}

func (j *job) doubt(v *spec.Value, format string, args ...any) { j.file.doubt(j, v, format, args...) }

// assume notes what the files leave open, at the value that it is about; nil: none.
func (f *file) assume(j *job, v *spec.Value, format string, args ...any) {
	j.notes = append(j.notes, f.at(note.FileAssumed.New(format, args...), v))
}

func (j *job) assume(v *spec.Value, format string, args ...any) { j.file.assume(j, v, format, args...) }

// get is the value of a key that is not null; nil if there is none.
func (f *file) get(key string) *spec.Value {
	v := f.doc.Root
	for _, k := range strings.Split(key, ".") {
		v = v.Get(k)
	}
	if v != nil && v.Kind == spec.Null {
		return nil
	}
	return v
}

// on reports whether a key asks for something.
func (f *file) on(key string) bool { return given(f.get(key)) }

// model is the name of a model, without which there is no job.
func (j *job) model(key string) {
	v := j.doc.Root.Get(key)
	if v.Kind != spec.Str || v.Str == "" {
		j.fail(v, "%s must name a model, such as meta-llama/Llama-3.2-1B", key)
	}
	j.named = v.Str
	j.set("model.hf", key, v)
	if slices.Contains(textAlone, j.modelType()) {
		j.doubt(v, "%s: %s has a vision model, whose weights %s loads; planned with the language model alone", key, v.Str, j.format.Title)
	}
}

// config is what the config.json of the job's model says, as far as it is known.
func (j *job) config() (c struct {
	Type   string          `json:"model_type"`
	Text   json.RawMessage `json:"text_config"`
	Vision json.RawMessage `json:"vision_config"`
	Audio  json.RawMessage `json:"audio_config"`
}) {
	if j.opts.Config != nil && j.named != "" {
		_ = json.Unmarshal(j.opts.Config(j.named), &c) // mistakes are reported where the model is made
	}
	return c
}

// multimodal reports whether the model takes images or audio with text: it has a
// configuration for each.
func (j *job) multimodal() bool {
	c := j.config()
	return c.Text != nil || c.Vision != nil || c.Audio != nil
}

// modelType is the model_type of the model, also of one of which memplan knows the type
// alone; "" if it is not known.
func (j *job) modelType() string {
	if t := j.config().Type; t != "" {
		return t
	}
	return hub.TypeOf(j.named)
}

// isType reports whether the model is of a type, or of one that begins so. If the type is
// not known, its name says so.
func (j *job) isType(name string) bool {
	if t := j.modelType(); t != "" {
		return strings.HasPrefix(t, name)
	}
	return strings.Contains(strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(j.named)), strings.ReplaceAll(name, "_", ""))
}

// textAlone are the model types of text and images of which memplan plans the language
// model alone, as AutoModelForCausalLM makes it; trainers use AutoModelForImageTextToText.
var textAlone = []string{"llama4", "qwen3_5", "qwen3_5_moe"}

// str is the text of a key.
func (f *file) str(key, otherwise string) string {
	v := f.get(key)
	if v == nil {
		return otherwise
	}
	if v.Kind == spec.List || v.Kind == spec.Map {
		f.fail(v, "%s must be a string, not %s", key, v.Describe())
	}
	return v.Str
}

// flag is a boolean.
func (f *file) flag(key string, otherwise bool) bool {
	v := f.get(key)
	if v == nil {
		return otherwise
	}
	on, isBool := word(v.Str)
	switch {
	case v.Kind == spec.Bool:
		return v.Bool
	case v.Kind == spec.Str && isBool:
		return on
	case v.Kind == spec.Int && (v.Int == 0 || v.Int == 1):
		return v.Int == 1
	}
	f.fail(v, "%s must be true or false, not %s", key, v.Describe())
	return false
}

// maxCount bounds counts, so that products of two do not overflow.
const maxCount = 1 << 31

// count is a whole number of 1 or more.
func (f *file) count(key string, otherwise int64) int64 {
	v := f.get(key)
	if v == nil {
		return otherwise
	}
	n := v.Int
	if v.Kind == spec.Str || v.Kind == spec.Float { // "8", 8.0
		x, err := strconv.ParseFloat(v.Str, 64)
		if err != nil || x != float64(int64(x)) {
			x = 0
		}
		n = int64(x)
	}
	if n < 1 || n > maxCount {
		f.fail(v, "%s must be a whole number of 1 or more, not %s", key, v.Describe())
	}
	return n
}

// oneOf is a string among those that the program knows.
func (f *file) oneOf(key, otherwise string, known ...string) string {
	s := f.str(key, otherwise)
	if !slices.Contains(known, s) {
		f.doc.Errs.Unknown(f.get(key).Span, key, s, known)
		panic(spec.Stop{})
	}
	return s
}
