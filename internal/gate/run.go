package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

// Options say what to check.
type Options struct {
	Specs  []string // as Find lists them
	Config *Config
	// Recipe reads a spec. Before, if it is not nil, does so as the spec was
	// earlier: at a commit; now is its text today. The recipe is nil if there was none.
	Recipe  func(path string) (*estimate.Recipe, error)
	Before  func(path string, now []byte) (*estimate.Recipe, error)
	Against string // names what Before or Baseline is
	Gone    []Gone // specs that there were earlier
	// ConfigChange is how the configuration differs from that of a commit; nil if it does not.
	ConfigChange *ConfigChange
	// Baseline holds earlier figures; nil: there is none.
	Baseline *Baseline
	Version  string // of memplan
	// Budget opens the budget of one spec on one GPU; nil: there are no limits.
	Budget func(context.Context) *limit.Budget
	// Time bounds the check as a whole; 0: it has no limit.
	Time time.Duration
	// Progress is told how many of the specs are done; it may be nil.
	Progress func(done, total int)

	whole context.Context // of the check
}

// Gone is a spec that there was earlier, by the path that it had.
type Gone struct {
	Spec   string
	Unread error // why what it was is not known; nil: it is
}

// A LackingError is the error of a file that a spec named earlier, where a clone has
// not its text.
type LackingError struct{ Err error }

func (e *LackingError) Error() string { return e.Err.Error() }
func (e *LackingError) Unwrap() error { return e.Err }

// TooMany is the error of a check of more specs, times GPUs, than are checked at
// once.
type TooMany struct{}

func (TooMany) Error() string {
	return fmt.Sprintf("more than %d specs times GPUs are not checked at once; name folders, or exclude some in the configuration", maxUnits)
}

// budget opens the budget of a unit.
func (o *Options) budget() *limit.Budget {
	if o.Budget == nil {
		return nil
	}
	return o.Budget(o.whole)
}

// maxUnits bounds specs times GPUs.
const maxUnits = 10_000

// Check estimates the specs on all cores and applies the rules. The error, if
// any, is ctx's, that of git, or TooMany.
func Check(ctx context.Context, o *Options) (*Result, error) {
	if o.Time > 0 {
		var cancel context.CancelFunc
		o.whole, cancel = context.WithTimeoutCause(ctx, o.Time, limit.Late("the check as a whole", o.Time))
		defer cancel()
	} else {
		o.whole = ctx
	}
	units, err := o.units()
	if err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		done int
		errs = make([]error, len(units))
	)
	pool.Do(len(units), func(i int) {
		if ctx.Err() != nil {
			return
		}
		u := &units[i]
		if p := pool.Catch(func() { errs[i] = u.check(o) }); p != nil {
			u.failed(p)
		}
		mu.Lock()
		defer mu.Unlock()
		if done++; o.Progress != nil {
			o.Progress(done, len(units))
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r := &Result{Version: ResultVersion, Config: o.Config.Path, Against: o.Against, Specs: []Checked{}, Findings: []Finding{}}
	for i := range units {
		if u := &units[i]; i == 0 || !u.repeats(&units[i-1]) {
			r.Specs = append(r.Specs, u.Checked)
			if u.met {
				r.Unfinished++
			}
		}
	}
	if c := o.ConfigChange; c != nil {
		if f, ok := c.finding(o.Config); ok {
			r.Findings = append(r.Findings, f)
		}
	}
	r.LeftOut = leftOut(units)
	r.Findings = append(r.Findings, o.gone()...)
	r.RulesOff = o.rulesOff()
	r.sum(o.Config)
	return r, nil
}

// unit is a spec on a GPU.
type unit struct {
	Checked
	path   string // as Options.Specs has it
	recipe *estimate.Recipe
	policy *setting
	budget *limit.Budget // while it is checked
	text   *spec.Spec    // as the file has it, for places; nil if it cannot be read
	met    bool          // a limit ended it

	leftOut []string // of the figures, by operators
}

// units lists what is to be checked: each spec on each GPU that is asked for.
func (o *Options) units() ([]unit, error) {
	var out []unit
	for _, path := range o.Specs {
		if err := context.Cause(o.whole); err != nil && !errors.As(err, new(*limit.Error)) {
			return nil, err
		}
		if len(out) >= maxUnits {
			return nil, TooMany{}
		}
		u := unit{path: path, Checked: Checked{Spec: path, Findings: []Finding{}}, policy: o.Config.policy(path)}
		devices := []string{""}
		if p := pool.Catch(func() { devices = u.read(o) }); p != nil {
			u.failed(p)
			u.text = nil
		}
		if len(out)+len(devices) > maxUnits {
			return nil, TooMany{}
		}
		for _, d := range devices {
			u.Asked = d
			out = append(out, u)
		}
	}
	return out, nil
}

// parse reads a spec, of which the mistakes are told when it is estimated.
func (o *Options) parse(r *estimate.Recipe) (s *spec.Spec, err error) {
	b := o.budget()
	defer b.Close()
	options := r.Options
	options.Meter = b.Meter()
	defer limit.Catch(&err)
	return spec.Parse(r.Path, r.Text, options)
}

// read reads the spec and says on which GPUs it is to be checked, "" for its own.
func (u *unit) read(o *Options) []string {
	own := []string{""}
	var err error
	if u.recipe, err = o.Recipe(u.path); err != nil {
		u.unread(err)
		return own
	}
	u.Spec = u.recipe.Path
	u.recipe.Options.GPUs = append(u.recipe.Options.GPUs, o.Config.GPUs...)
	if u.text, err = o.parse(u.recipe); u.text == nil {
		u.unread(err)
		return own
	}
	if d := u.text.Device; !u.policy.force && (d.GPU.Set || d.Arch.Set || d.SMs.Set) || len(u.policy.devices) == 0 {
		return own
	}
	return u.policy.devices
}

// repeats reports a spec that cannot be read on one GPU for the same reason as on
// the one before; it is then said once.
func (u *unit) repeats(before *unit) bool {
	return u.Fits == nil && before.Fits == nil && u.Spec == before.Spec && slices.Equal(u.Findings, before.Findings)
}

// ownGPU are the keys of a device section that describe the spec's own GPU.
var ownGPU = []string{"device.memory", "device.context", "device.arch", "device.sms", "device.name"}

// on is a recipe on the GPU that is asked for.
func on(r *estimate.Recipe, device string) *estimate.Recipe {
	if device == "" {
		return r
	}
	other := *r
	other.Options.Flags = slices.Clone(r.Options.Flags)
	for _, key := range ownGPU {
		other.Options.Flags = append(other.Options.Flags, spec.Flag{Path: key, Drop: true})
	}
	other.Options.Flags = append(other.Options.Flags, spec.Flag{Flag: "device " + device, Path: "device.gpu", Value: device, Text: true})
	return &other
}

// outcome is a job that was estimated.
type outcome struct {
	*estimate.Outcome
	report *report.Report
	files  bool // it reads files beside the spec
}

// play estimates a recipe. It is played until its steps are equal, however many
// the spec wants to be simulated.
func play(r *estimate.Recipe) (*outcome, error) {
	out := &outcome{}
	watched := *r
	var lacking *LackingError
	watched.ReadFile = func(name string) ([]byte, error) {
		out.files = true
		text, err := r.ReadFile(name)
		errors.As(err, &lacking)
		return text, err
	}
	j, err := watched.Job()
	if lacking != nil {
		return nil, lacking
	}
	if err != nil {
		return nil, err
	}
	j.Spec.Train.Steps = spec.Integer{}
	if out.Outcome, err = estimate.Run(j); err != nil {
		return nil, err
	}
	out.report = out.Report()
	return out, nil
}

// figures are the peaks of an outcome.
func (o *outcome) figures() *Figures {
	r := o.report
	return &Figures{r.Peak.AllocatedBytes, r.Peak.ReservedBytes, r.Uncertainty.ReservedExpectedBytes}
}

// check estimates the unit and applies the rules.
func (u *unit) check(o *Options) error {
	if u.recipe == nil || u.text == nil {
		return nil
	}
	if late := context.Cause(o.whole); late != nil {
		u.unread(late)
		return nil
	}
	b := o.budget()
	defer b.Close()
	r := *on(u.recipe, u.Asked) // the recipe is that of the spec on other GPUs, too
	r.Budget, u.budget = b, b
	out, err := play(&r)
	if err != nil {
		u.unread(err)
		return nil
	}
	is := out.report
	u.Model, u.GPU, u.Batch = is.Model.Name, is.Device.Name, is.Train.BatchSize
	u.Fits, u.Result, u.Peak = &is.Verdict.Fits, is.Verdict.Result, out.figures()
	u.UsableBytes, u.HeadroomBytes = is.Device.UsableBytes, is.Verdict.HeadroomBytes
	u.examine(out)
	return u.compare(o, out)
}

// failed reports that memplan itself broke down over the spec, which is then not
// checked, whatever was found before.
func (u *unit) failed(p *pool.Panic) {
	u.Checked = Checked{Spec: u.Spec, Asked: u.Asked, Panic: p, Findings: []Finding{}}
	u.met = true
	u.add(unfinished, spec.Span{Pos: spec.Pos{Line: 1, Col: 1}}, "internal error in %s: %.200v; this is a bug in memplan, please report it", p.At, p.Value)
}

// unread reports that the spec cannot be read, each mistake at its place.
func (u *unit) unread(err error) {
	wrong, played, file := (*spec.Errors)(nil), (*program.Error)(nil), (*fs.PathError)(nil)
	if named := (*graph.FileError)(nil); errors.As(err, &named) {
		err = named.Err
	}
	switch {
	case errors.As(err, new(*limit.Error)):
		u.met = true
		u.add(unfinished, u.place("memplan"), "not checked to the end: %v", err)
	case errors.As(err, &file) && filepath.Clean(file.Path) == filepath.Clean(u.Spec):
		u.add(specError, u.place(), "the file cannot be read: %v", file.Err)
	case errors.As(err, &wrong) && (u.recipe == nil || u.recipe.Options.Label == "" || u.recipe.Options.Origins != nil):
		for _, d := range wrong.List {
			msg := wrong.Message(&d)
			if d.Hint != "" {
				msg += " (" + d.Hint + ")"
			}
			at := d.Span
			if o := wrong.Origin(d.Span); o != (spec.Origin{}) {
				at = o.Span
			} else if len(wrong.Origins) > 0 {
				at = u.place("memplan")
			}
			if o, ok := wrong.Override(&d); ok {
				at, msg = u.place("device.gpu", "memplan"), o+": "+msg
			}
			u.add(specError, at, "%s", msg)
		}
		if wrong.More > 0 {
			u.add(specError, u.place("memplan"), "and %d more mistakes", wrong.More)
		}
	case errors.As(err, &played) && played.File == u.Spec && played.Line > 0:
		at := spec.Span{Pos: spec.Pos{Line: played.Line, Col: max(played.Column, 1)}}
		inner := *played
		inner.File, inner.Line, inner.Column = "", 0, 0
		u.add(specError, at, "%v", &inner)
	default:
		u.add(specError, u.place("memplan"), "%s", strings.TrimPrefix(err.Error(), u.Spec+": "))
	}
}
