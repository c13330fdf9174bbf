package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// A layout is a way to spread a job over GPUs: whose are parameters, gradients and the
// optimizer's state. Each process has the batch that the spec has, so that all layouts take the
// same samples in a step.

// Layout is one way, with what makes it fit.
type Layout struct {
	Name    string
	Keys    []estimate.Key // of the spec: the layout's and those of the options
	Options []*Option      // that make it fit; none: it fits as it is
	Outcome *estimate.Outcome
	Fits    bool
	Step    StepTime
}

// Refusal is a layout that the job cannot have.
type Refusal struct {
	Name string
	Err  error
}

// Layouts are what a search found.
type Layouts struct {
	Found   []*Layout // those that fit, the fastest first; then those that do not, by what they need
	Refused []Refusal
	First   *estimate.Outcome // of the first way that the job can be spread in, without changes; nil: there is none
	Tried   int               // simulations
	Links   Links
}

// LayoutSearch says over what the job is spread.
type LayoutSearch struct {
	GPUs  int64
	Links Links
	// Progress, if it is there, is called with the simulations made and the layouts found.
	Progress func(tried, found int)
}

// way is a layout before it is tried.
type way struct {
	name   string
	spread string  // the key of parallel
	with   []entry // other keys of parallel
	train  []estimate.Key
	stage  int // of DeepSpeed
}

// entry is a key of parallel and its value.
type entry struct {
	key   string
	value any
}

// strategy is the key that says what FSDP1 divides.
const strategy = "sharding_strategy"

// ways lists how a job can be spread over n GPUs.
func (s *LayoutSearch) ways(j *estimate.Job) []way {
	n, node := s.GPUs, s.Links.PerNode
	if j.Program.Parallel.DeepSpeed != nil {
		if config := j.Spec.Parallel.Config; config == nil || config.Kind != spec.Map { // a file says which stage it is
			return []way{{name: fmt.Sprintf("DeepSpeed, stage %d", j.Program.Parallel.DeepSpeed.Stage), spread: "deepspeed"}}
		}
		var out []way
		for stage := 1; stage <= 3; stage++ {
			out = append(out, way{name: fmt.Sprintf("DeepSpeed, stage %d", stage), spread: "deepspeed", stage: stage})
		}
		return out
	}
	out := []way{
		{name: "DDP", spread: "ddp"},
		{name: "DDP, ZeroRedundancyOptimizer", spread: "ddp", with: []entry{{"zero", 1}}},
	}
	flat := j.Program.Parallel.FSDP != nil && j.Program.Parallel.FSDP.Flat != nil
	whole, kept, grouped := []entry(nil), []entry{{"reshard_after_forward", false}}, []entry{{"replicate", n / node}}
	if flat {
		whole, kept = []entry{{strategy, program.FullShard}}, []entry{{strategy, program.ShardGradOp}}
		grouped = append(grouped, entry{strategy, program.HybridShard})
	}
	sharded := func(name string, with []entry, train ...estimate.Key) {
		add := func(name string, more []entry) {
			out = append(out, way{name: name, spread: "fsdp", with: slices.Concat(with, more), train: train})
		}
		add("FSDP"+name, whole)
		add("FSDP"+name+", parameters kept for backward", kept)
		if n <= node || n%node != 0 {
			return
		}
		add(fmt.Sprintf("HSDP %d × %d%s", n/node, node, name), grouped)
		if !flat {
			add("FSDP"+name+", resharded within nodes", []entry{{"reshard_after_forward", node}})
		}
	}
	sharded("", nil)
	if j.Spec.Trainer == nil && j.Spec.Step == nil && j.Spec.Train.Precision.V == "amp-bf16" && (j.Spec.Parallel == nil || !j.Spec.Parallel.Param.Set) {
		sharded(" in bfloat16", []entry{{"param_dtype", "bfloat16"}, {"reduce_dtype", "float32"}}, key("train.precision", "fp32"))
	}
	return out
}

// keys are those of the spec that lay it out so. What the spec says of this way to spread it is
// kept, and what it says of others is not.
func (w *way) keys(r *estimate.Recipe, s *spec.Spec, gpus int64) []estimate.Key {
	given := s.Given("parallel")
	has := map[string]bool{}
	entries := []string{fmt.Sprintf("%s: %d", w.spread, gpus)}
	for _, x := range w.with {
		entries = append(entries, fmt.Sprintf("%s: %v", x.key, x.value))
		has[x.key] = true
	}
	if given.Get(w.spread) != nil {
		for _, p := range given.Pairs {
			switch k := p.Key.Str; {
			case k == w.spread || has[k] || k == "rank":
			case k == "config" && w.stage > 0 && p.Value.Kind == spec.Map:
				entries = append(entries, k+": "+staged(p.Value, w.stage))
			case k == "replicate" || k == "reshard_after_forward" || k == "zero": // are other ways
			default:
				entries = append(entries, k+": "+p.Value.Flow())
			}
		}
	}
	if v := given.Get("no_sync"); v != nil && given.Get(w.spread) == nil && (w.spread == "ddp" || w.spread == "fsdp") {
		entries = append(entries, "no_sync: "+v.Flow()) // a key of both
	}
	var out []estimate.Key
	for _, name := range sections(r) {
		out = append(out, key(name, "null"))
	}
	return append(append(out, key("parallel", "{"+strings.Join(entries, ", ")+"}")), w.train...)
}

// sections are the ways to spread a job of which the spec, or the command line, has a section
// outside of parallel.
func sections(r *estimate.Recipe) []string {
	root := spec.ReadPlain(r.Path, r.Text, nil).Root
	given := slices.Clone(r.Options.Set)
	for _, f := range r.Options.Flags {
		given = append(given, f.Path)
	}
	return slices.DeleteFunc(spec.Spreads(), func(name string) bool {
		return root.Get(name) == nil && !slices.ContainsFunc(given, func(set string) bool {
			rest, found := strings.CutPrefix(set, name)
			return found && (rest == "" || rest[0] == '.' || rest[0] == '=')
		})
	})
}

// staged writes a configuration of DeepSpeed with another stage.
func staged(config *spec.Value, stage int) string {
	var entries []string
	zero := []string{fmt.Sprintf("stage: %d", stage)}
	for _, p := range config.Pairs {
		if p.Key.Str != "zero_optimization" {
			entries = append(entries, p.Key.Str+": "+p.Value.Flow())
			continue
		}
		for _, z := range p.Value.Pairs {
			if z.Key.Str != "stage" {
				zero = append(zero, z.Key.Str+": "+z.Value.Flow())
			}
		}
	}
	return "{" + strings.Join(append(entries, "zero_optimization: {"+strings.Join(zero, ", ")+"}"), ", ") + "}"
}

// layoutGroups are the groups of changes that are tried with a layout, and layoutTries how many
// sets of them: those with the shortest steps.
var layoutGroups = []string{"checkpoint", "batch"}

const layoutTries = 24

// Why a job has no layouts to search.
var (
	ErrNotTraining = errors.New("layouts are for jobs that train")
	ErrDivided     = errors.New("layouts of a model that is itself divided (tp, pp, trainer: {megatron: ...}) are not searched; leave that out of the spec")
)

// LayOut finds, of each way to spread a job over GPUs, the changes with which its step is the
// shortest among those that fit. The error is the spec's, ErrNotTraining, ErrDivided, or ctx's.
func LayOut(ctx context.Context, r *estimate.Recipe, s LayoutSearch) (*Layouts, error) {
	j, err := r.Job()
	if err != nil {
		return nil, err
	}
	if j.Program.Inference != "" {
		return nil, ErrNotTraining
	}
	if p := &j.Program.Parallel; p.TP != nil || p.Pipeline != nil || p.Megatron != nil {
		return nil, ErrDivided
	}
	out := &Layouts{}
	for _, w := range s.ways(j) {
		l, err := s.fastest(ctx, r, w.keys(r, j.Spec, s.GPUs), out)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			out.Refused = append(out.Refused, Refusal{w.name, err})
		default:
			l.Name = w.name
			out.Found = append(out.Found, l)
		}
		if s.Progress != nil {
			s.Progress(out.Tried, len(out.Found))
		}
	}
	reserved := func(l *Layout) tensor.Bytes { return l.Outcome.Free.PeakReserved.Reserved }
	slices.SortStableFunc(out.Found, func(a, b *Layout) int {
		if !a.Fits && !b.Fits {
			return cmp.Compare(reserved(a), reserved(b))
		}
		return cmp.Or(behind(!a.Fits, !b.Fits), behind(a.tight(), b.tight()), cmp.Compare(a.Step.Seconds, b.Step.Seconds), cmp.Compare(reserved(a), reserved(b)))
	})
	return out, nil
}

// tight reports whether the layout fits only after cached memory was given back.
func (l *Layout) tight() bool { return l.Fits && l.Outcome.Retries() }

// fastest finds the changes with which a layout is the fastest that fits; of those that do not fit,
// the one that needs the least.
func (s *LayoutSearch) fastest(ctx context.Context, r *estimate.Recipe, keys []estimate.Key, found *Layouts) (*Layout, error) {
	laid := *r
	laid.Options.Flags = slices.Clone(r.Options.Flags)
	for _, k := range keys {
		laid.Options.Flags = append(laid.Options.Flags, spec.Flag{Flag: "--set " + k.String(), Path: k.Path, Value: k.Value})
	}
	first, err := runWith(&laid)
	if err != nil {
		return nil, err
	}
	found.Tried++
	if found.First == nil {
		found.First = first
	}
	b := newBase(&laid, first)
	groups := b.options(All())
	groups = slices.DeleteFunc(groups, func(g []*Option) bool { return !slices.Contains(layoutGroups, g[0].Change.Group) })
	asIs := &combination{}
	tries := append([]*combination{asIs}, b.combinations(groups)...)
	tries = slices.DeleteFunc(tries, func(c *combination) bool {
		return slices.ContainsFunc(c.options, func(o *Option) bool { return o.Numerics() == Different })
	})
	times := map[*combination]StepTime{}
	for _, c := range tries {
		times[c] = s.Links.step(b, c.options)
	}
	slices.SortStableFunc(tries, func(x, y *combination) int {
		return cmp.Or(cmp.Compare(times[x].Seconds, times[y].Seconds), bySimplicity(x, y))
	})
	bounds := newBounds(first.Job.Machine.Usable())
	bounds.learn(asIs, first)
	best := &Layout{Keys: keys, Outcome: first, Fits: first.Fits(), Step: times[asIs]}
	for tried, c := range tries {
		if ctx.Err() != nil || tried == layoutTries {
			break
		}
		switch {
		case c == asIs && first.Fits() && !first.Retries():
			return &Layout{Keys: keys, Outcome: first, Fits: true, Step: times[asIs]}, nil
		case c == asIs, bounds.hopeless(c):
			continue
		}
		o, err := runWith(&laid, c.keys()...)
		if err != nil {
			continue // the changes do not go with the job
		}
		found.Tried++
		bounds.learn(c, o)
		l := &Layout{Keys: append(slices.Clone(keys), c.keys()...), Options: c.options, Outcome: o, Fits: o.Fits(), Step: times[c]}
		if l.Fits && !l.tight() {
			return l, nil
		}
		if l.better(best) {
			best = l
		}
	}
	return best, nil
}

// better reports whether a layout that does not fit with ease comes before another.
func (l *Layout) better(m *Layout) bool {
	if l.Fits != m.Fits {
		return l.Fits
	}
	return !l.Fits && l.Outcome.Free.PeakReserved.Reserved < m.Outcome.Free.PeakReserved.Reserved
}

// runWith estimates the job with some keys.
func runWith(r *estimate.Recipe, keys ...estimate.Key) (*estimate.Outcome, error) {
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	return estimate.Run(j)
}

// StepTime is how long a step takes, in seconds, as a model has it.
type StepTime struct {
	Seconds       float64
	Communication float64 // of collectives, beside computing or not
	Exposed       float64 // of them, what computing waits for
}

// step is the time of a step of a job that is spread, with some options: Work.Seconds, and what
// collectives take that nothing is computed beside. DistributedDataParallel reduces gradients beside
// the backward pass, but for the last bucket; FSDP gathers parameters beside the module before, but for the first, and reduces
// gradients beside the next (Zhao et al. 2023, PyTorch FSDP, arXiv:2304.11277, section 3.3).
func (l Links) step(b *Base, options []*Option) StepTime {
	w := b.work(options)
	p := &b.Job.Program.Parallel
	total := w.Seconds(b.rate, b.Job.Machine.Env.SMs)
	alone := *w
	alone.Optimizer, alone.Steps, alone.Host, alone.Link = 0, 0, 0, 0
	passes := alone.Seconds(b.rate, b.Job.Machine.Env.SMs) / w.Microbatches
	forward := passes / max(w.Passes, 1)
	c := l.collectives(b, w, p)
	t := StepTime{Communication: w.Microbatches*(c.forward+c.backward) + c.after}
	t.Exposed = w.Microbatches*(max(0, c.forward-forward)+max(0, c.backward-(passes-forward))+c.ends) + c.after
	t.Exposed = min(t.Exposed, t.Communication)
	t.Seconds = total + t.Exposed
	return t
}

// collectives are the times of a microbatch's collectives, in its forward and its backward pass; of the parts of them that
// nothing is computed beside; and of those of the optimizer's step.
type collectives struct{ forward, backward, ends, after float64 }

func (l Links) collectives(b *Base, w *Work, p *program.Parallel) collectives {
	all := l.of(p.Ranks)
	switch {
	case p.FSDP != nil:
		return l.sharded(b, w, p.FSDP)
	case p.DeepSpeed != nil:
		return l.deepspeed(w, p, all)
	case p.DDP != nil:
		gradients := w.GradientBytes
		if p.DDP.Compress != "" {
			gradients /= 2
		}
		once := b.reductions(w)
		c := collectives{backward: once * all.reduce(gradients), ends: once * all.reduce(min(gradients, p.DDP.BucketCap*(1<<20)))}
		if p.ZeRO != nil {
			c.after = all.broadcast(w.ParameterBytes)
		}
		return c
	}
	return collectives{}
}

// reductions is how often gradients are reduced in a microbatch: with no_sync in the last alone.
func (b *Base) reductions(w *Work) float64 {
	if s := b.Job.Spec.Parallel; s != nil && s.NoSync.V {
		return 1 / w.Microbatches
	}
	return 1
}

// sharded are the collectives of FSDP: each unit is gathered as a whole.
func (l Links) sharded(b *Base, w *Work, f *program.FSDP) collectives {
	units := float64(len(f.Units) + 1)
	shards := l.of(f.Shards)
	gathered := w.ParameterBytes * float64(f.Shards)
	if f.ParamDType != nil && w.Parameters > 0 {
		gathered = w.Parameters * float64(f.ParamDType.Size())
	}
	reduced := gathered * w.Trained / max(w.Parameters, 1)
	if f.ReduceDType != nil {
		reduced = w.Trained * float64(f.ReduceDType.Size())
	}
	once := b.reductions(w)
	gather, scatter := shards.gather(gathered/units), once*shards.gather(reduced/units)
	c := collectives{forward: units * gather, backward: units * scatter, ends: gather + scatter}
	if f.Reshard > 0 && f.Flat == nil || f.Flat != nil && f.Flat.Frees() {
		again := f.Shards
		if f.Flat == nil {
			again = min(again, f.Reshard)
		}
		c.backward += units * l.of(again).gather(gathered/units)
	}
	if f.Replicas > 1 {
		c.backward += once * units * l.across(f.Replicas, f.Shards).reduce(reduced/float64(f.Shards)/units)
	}
	return c
}

// deepspeed are the collectives of ZeRO, whose third stage gathers modules as FSDP does; the first two reduce gradients, and
// gather parameters after the step.
func (l Links) deepspeed(w *Work, p *program.Parallel, all group) collectives {
	d := p.DeepSpeed
	size := float64(d.DType.Size())
	gradients := w.Trained * float64(d.Comm.Size())
	if d.Stage == 3 {
		g, r := all.gather(w.Parameters*size), all.gather(gradients)
		c := collectives{forward: g, backward: g + r, ends: (g + r) / max(w.Tensors, 1)} // the first module's and the last one's
		if !d.Overlap {
			c.backward, c.ends = g, g/max(w.Tensors, 1)+r
		}
		return c
	}
	c := collectives{backward: all.gather(gradients), after: all.gather(w.Trained * size)}
	if !d.Overlap {
		c.ends, c.backward = c.backward, 0
	}
	return c
}
