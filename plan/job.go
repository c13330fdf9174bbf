package plan

import (
	"context"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/specs"
)

// Bytes is an amount of memory. It prints as 12.24 GiB; JSON has the number.
type Bytes = tensor.Bytes

// ParseBytes reads an amount such as 24GiB, 512MB or a number of bytes.
func ParseBytes(s string) (Bytes, error) { return tensor.ParseBytes(s) }

// Limits are what one call may take of the machine that it runs on. Memory is what a call
// is counted to hold, 0 is no limit, as it is of Time; Work is counted, too, and so the
// same on all machines, and 0 is what Time allows.
type Limits = limit.Limits

// LimitError says which limit a call met.
type LimitError = limit.Error

// Job is a training job. Its fields must not change while it is used; several
// goroutines may use it at once.
type Job struct {
	// Name is what messages and the report call the spec: its path, or any other name.
	Name string
	// Text is the spec, in YAML.
	Text []byte
	// Set overrides keys of the spec, each "path=value" with a value in YAML, such as
	// "train.batch_size=32", "params.seq=2048", `device.gpu="h100-80gb"`.
	Set []string
	// ReadFile reads the files that the spec names, such as a config.json of Hugging
	// Face; nil: the spec may name none. Models that memplan list models shows need no file.
	ReadFile func(name string) ([]byte, error)
	// Limits hold for each call by itself.
	Limits Limits

	recipe *estimate.Recipe // of the command line, in place of Text and ReadFile
}

// FromRecipe is the job of a recipe. It is for the command line, which has more to say
// of a spec than the fields of Job: programs cannot name the type.
func FromRecipe(r *estimate.Recipe) *Job { return &Job{Name: r.Path, recipe: r} }

// Preset returns the text of a spec that comes with memplan, such as "gpt2" or
// "hf/llama".
func Preset(name string) ([]byte, error) { return specs.Preset(name) }

// Presets lists the names for Preset, sorted; those of Hugging Face's model types
// begin with hf/.
func Presets() []string {
	names := specs.Names()
	for _, t := range specs.HFTypes() {
		names = append(names, "hf/"+t)
	}
	slices.Sort(names)
	return names
}

// With returns the job with more keys set, after those of Set.
func (j *Job) With(set ...string) *Job {
	c := *j
	c.Set = slices.Concat(j.Set, set)
	return &c
}

// open makes what a call works with: the recipe, with a budget of its own unless the
// context has one, and a context that ends with the budget. The caller calls done.
func (j *Job) open(ctx context.Context) (r *estimate.Recipe, within context.Context, done func(), err error) {
	b, done, err := budget(ctx, j.Limits)
	if err != nil {
		return nil, nil, nil, err
	}
	r = &estimate.Recipe{Path: j.Name, Text: j.Text, Options: spec.Options{Set: j.Set}, ReadFile: j.ReadFile}
	if j.recipe != nil {
		*r = *j.recipe
		r.Options.Flags = slices.Clone(r.Options.Flags)
		for _, s := range j.Set { // after the flags
			path, value, _ := strings.Cut(s, "=")
			r.Options.Flags = append(r.Options.Flags, spec.Flag{Flag: "--set " + s, Path: path, Value: value})
		}
	}
	r.Budget = b
	return r, b.Context(ctx), done, nil
}

// budget is that of the context or, without one, a new one; the error is that the
// context ended.
func budget(ctx context.Context, l Limits) (b *limit.Budget, done func(), err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if b := limit.Of(ctx); b != nil {
		return b, func() {}, nil
	}
	b = limit.New(ctx, l)
	return b, b.Close, nil
}

// build makes the job itself. The caller calls done when it needs it no longer.
func (j *Job) build(ctx context.Context) (built *estimate.Job, done func(), err error) {
	r, _, done, err := j.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if built, err = r.Job(); err != nil {
		done()
		return nil, nil, err
	}
	return built, done, nil
}

// Check reads the spec and elaborates its model, and plays nothing. Mistakes lists
// what is wrong.
func (j *Job) Check(ctx context.Context) error {
	_, done, err := j.build(ctx)
	if err == nil {
		done()
	}
	return err
}

// Estimate plays the job and replays its allocations on the GPU of the spec.
func (j *Job) Estimate(ctx context.Context) (*Estimate, error) {
	built, done, err := j.build(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := estimate.Run(built)
	if err != nil {
		return nil, err
	}
	return &Estimate{Report: o.Report(), job: j, outcome: o}, nil
}

// Trace plays the job and returns its allocations and frees, with the GPU's memory as
// the capacity.
func (j *Job) Trace(ctx context.Context) (*Trace, error) {
	built, done, err := j.build(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := estimate.Play(built)
	if err != nil {
		return nil, err
	}
	return traceOf(built, p.Trace), nil
}

// traceOf is a trace with the GPU's memory.
func traceOf(j *estimate.Job, t *trace.Trace) *Trace {
	m := j.Machine
	return &Trace{
		Config: m.ConfText, Torch: m.Env.Torch.String(), Capacity: m.Total, Occupied: m.Context + m.Occupied, MemoryFraction: m.Fraction, Trace: *t,
	}
}
