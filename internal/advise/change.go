package advise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
)

// Numerics is what a change does to the numbers that training computes.
type Numerics uint8

// The kinds, by how much they change.
const (
	Same       Numerics = iota // the same sums in the same types, perhaps in another order
	Statistics                 // the same training; what an evaluation normalizes by differs
	Rounding                   // fewer bits
	Different                  // another training: results must be checked again
)

// Effort is the work to adopt a change.
type Effort uint8

// The kinds, by how much work they are.
const (
	Switch  Effort = iota // an environment variable or an argument
	Lines                 // a few lines of the training script
	Rewrite               // another library, or another structure of the script
)

// The price of what a change does beside the time that it takes, in per cent of
// the time of a step: for how much slower a step people would rather leave it.
// That is taste rather than measurement. A tenth of a step's time for fewer bits,
// half of that for other statistics, the double time before anybody trains
// something else.
var (
	numericsPrice = [...]float64{Same: 0, Statistics: 5, Rounding: 10, Different: 100}
	effortPrice   = [...]float64{Switch: 0.5, Lines: 2, Rewrite: 10}
	numericsName  = [...]string{Same: "none", Statistics: "running statistics", Rounding: "rounding", Different: "different training"}
	effortName    = [...]string{Switch: "a switch", Lines: "a few lines", Rewrite: "another library or structure"}
)

// String is the name in reports.
func (n Numerics) String() string { return numericsName[n] }

// String is the name in reports.
func (e Effort) String() string { return effortName[e] }

// Change is one kind of change that may make a job fit: a row of the catalogue.
type Change struct {
	ID string
	// Rank is its place in the catalogue: hundreds are of a topic. Changes are made,
	// priced and listed in this order.
	Rank  int
	Title string
	// Group: a proposal has at most one change of a group.
	Group string
	// Technique is the section of docs/techniques.md that shows what it does.
	Technique string
	Numerics  Numerics
	Effort    Effort
	// Clever changes come behind well-known ones, those of the guides that people
	// read first: PyTorch's message and tuning guide, Hugging Face's "Efficient
	// Training on a Single GPU" and on several.
	Clever bool
	// Cost says in words what Option.Work computes, and Source where the figures
	// are from.
	Cost, Source string
	// Reach says which figures of a job it may change: see bounds.
	Reach Reach
	// Recorded says that it applies to recordings: it needs no other program.
	Recorded bool
	// Options are the ways in which it can be made in a job; none: it does not
	// apply.
	Options func(b *Base) []Option
}

// Option is a change with its values.
type Option struct {
	Change *Change
	Name   string         // of the option among those of the change: 4, or ""
	Keys   []estimate.Key // of the spec
	Text   string         // what it does, for people
	Code   string         // in a PyTorch script
	Work   func(w *Work)  // what becomes of the work; nil: nothing
	// Worse are numerics that are not those of the change in this job.
	Worse Numerics
	// Reach is that of the option; 0: the change's. Settles are the parts that with it are
	// what they are whatever other changes do to them.
	Reach, Settles Reach

	cost float64 // of the option alone
}

// ID names the change and its value: accumulate:4.
func (o *Option) ID() string {
	if o.Name == "" {
		return o.Change.ID
	}
	return o.Change.ID + ":" + o.Name
}

// reach is what the option may alter of the job's memory.
func (o *Option) reach() Reach {
	if o.Reach != 0 {
		return o.Reach
	}
	return o.Change.Reach
}

// allocConf is the key of the allocator's options.
const allocConf = "device.alloc_conf"

// ofAllocator reports whether the option changes what the allocator does, and nothing that is
// asked of it.
func (o *Option) ofAllocator() bool {
	return !slices.ContainsFunc(o.Keys, func(k estimate.Key) bool { return k.Path != allocConf })
}

// Numerics is what the option does to numbers in this job.
func (o *Option) Numerics() Numerics { return max(o.Change.Numerics, o.Worse) }

// Reach says what of a job's memory a change may alter. What a change leaves
// alone it leaves alone to the byte: that is what lets one simulation speak for
// many, see bounds.
type Reach uint8

// The parts.
const (
	Weights   Reach = 1 << iota // parameters and buffers
	Gradients                   // of parameters, when the optimizer steps
	State                       // of the optimizer
	Stepping                    // what its step takes beside
	Passing                     // what forward and backward passes hold beside those

	Everything = Weights | Gradients | State | Stepping | Passing
)

// Base is the job that does not fit, as changes see it.
type Base struct {
	Recipe  *estimate.Recipe
	Job     *estimate.Job
	Outcome *estimate.Outcome
	Work    Work
	rate    rate
	blocks  *blocks // that checkpoints can be put around
}

// newBase reads what changes need to know of a job that was run.
func newBase(r *estimate.Recipe, o *estimate.Outcome) *Base {
	b := &Base{Recipe: r, Job: o.Job, Outcome: o, Work: workOf(o), rate: rateOf(o.Job.Machine.Env.Arch)}
	b.blocks = blocksOf(b)
	return b
}

// trains reports whether the job trains, rather than infers.
func (b *Base) trains() bool { return b.Job.Program.Inference == "" }

// sugar reports whether the keys of train make the step: a step of its own does
// what it says.
func (b *Base) sugar() bool { return b.trains() && b.Job.Spec.Step == nil }

// work is the work of a step with some options.
func (b *Base) work(options []*Option) *Work {
	w := b.Work
	for _, o := range options {
		if o.Work != nil {
			o.Work(&w)
		}
	}
	return &w
}

// seconds is the time of a step with some options.
func (b *Base) seconds(options []*Option) float64 {
	return b.work(options).Seconds(b.rate, b.Job.Machine.Env.SMs)
}

// key makes a key with any scalar for its value.
func key(path string, value any) estimate.Key {
	return estimate.Key{Path: path, Value: fmt.Sprint(value)}
}

// catalogue holds the changes, each added where it is defined.
var catalogue changes

type changes []*Change

// add adds rows; an identifier or rank that is used already is a programming
// error.
func (c *changes) add(rows ...Change) struct{} {
	for i := range rows {
		r := &rows[i]
		for _, o := range *c {
			if o.ID == r.ID || o.Rank == r.Rank {
				panic("advise: changes " + o.ID + " and " + r.ID + " have one name or rank")
			}
		}
		*c = append(*c, r)
	}
	return struct{}{}
}

// All is the catalogue of changes, by rank.
func All() []*Change {
	return slices.SortedFunc(slices.Values(catalogue), func(a, b *Change) int { return cmp.Compare(a.Rank, b.Rank) })
}

// Lookup returns the change of that name, nil if there is none.
func Lookup(id string) *Change {
	for _, c := range catalogue {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Names lists the changes.
func Names() []string {
	var out []string
	for _, c := range All() {
		out = append(out, c.ID)
	}
	return out
}

// forTrainer writes an option of a job with a trainer in the trainer's arguments; false if
// these cannot say it.
func (o *Option) forTrainer(b *Base) bool {
	s := b.Job.Spec
	if s.Trainer == nil {
		return true
	}
	var asked []spec.Setting
	for _, k := range o.Keys {
		asked = append(asked, spec.Setting{Path: k.Path, Value: k.Value})
	}
	settings, ok := s.TrainerSettings(asked...)
	if !ok {
		return false
	}
	var ks []estimate.Key
	var code []string
	for _, x := range settings {
		ks = append(ks, estimate.Key{Path: x.Path, Value: x.Value})
		if name, ok := strings.CutPrefix(x.Path, "trainer."+s.Trainer.Key()+"."); ok && !slices.Contains(asked, x) {
			code = append(code, name+": "+x.Value)
		}
	}
	if o.Keys = ks; len(code) > 0 {
		o.Code = strings.Join(code, "\n")
	}
	return true
}

// options are all ways to change a job, by group, in the order of the catalogue.
func (b *Base) options(catalogue []*Change) [][]*Option {
	var groups []string
	byGroup := map[string][]*Option{}
	recorded, _ := b.Job.Recorded()
	for _, c := range catalogue {
		if recorded && !c.Recorded {
			continue
		}
		for _, o := range c.Options(b) {
			if o.Change = c; !o.forTrainer(b) {
				continue
			}
			o.cost = b.combine([]*Option{&o}).cost
			if byGroup[c.Group] == nil {
				groups = append(groups, c.Group)
			}
			byGroup[c.Group] = append(byGroup[c.Group], &o)
		}
	}
	var out [][]*Option
	for _, g := range groups {
		out = append(out, byGroup[g])
	}
	return out
}

// lines joins lines of code.
func lines(s ...string) string { return strings.Join(s, "\n") }
