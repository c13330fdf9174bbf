package estimate

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Recordings are a job as a script did it, with one or with several sizes of its batch.
type Recordings struct {
	All []*record.Recording

	name string // of the batch; "": there is one recording
	mu   sync.Mutex
	made map[op.Env]*family
}

// family is what was played of recordings that differ in the batch.
type family struct {
	at     []int64
	played []*engine.Played
	first  *record.Played
	line   *line // nil: they differ in more than sizes, or these are on no line
	err    error
}

// NewRecordings checks what was read of one file.
func NewRecordings(all []*record.Recording) (*Recordings, error) {
	r := &Recordings{All: all, made: map[op.Env]*family{}}
	if len(all) == 1 {
		return r, nil
	}
	seen := map[int64]bool{}
	for _, x := range all {
		if len(x.Batch) != 1 {
			return nil, errors.New("recordings in one file are of one script with several sizes of its batch (memplan record --batch)")
		}
		for name, n := range x.Batch {
			if r.name == "" {
				r.name = name
			}
			if name != r.name || n < 1 || seen[n] {
				return nil, fmt.Errorf("recordings with %s=%d and others do not go together", name, n)
			}
			seen[n] = true
		}
	}
	return r, nil
}

// batch is the size of the batch of a recording, 0 where it does not say.
func batch(r *record.Recording) int64 {
	for _, n := range r.Batch {
		return n
	}
	return 0
}

// of is the recording with a size of the batch; nil if there is none.
func (r *Recordings) of(n int64) *record.Recording {
	for _, x := range r.All {
		if batch(x) == n {
			return x
		}
	}
	return nil
}

// Text is the spec of a recording: the machine that was pretended, and the version of PyTorch.
func (r *Recordings) Text(path string) []byte {
	x := r.All[0]
	var b strings.Builder
	name := filepath.Base(path)
	for _, a := range x.Argv[:min(1, len(x.Argv))] {
		name = filepath.Base(a)
	}
	fmt.Fprintf(&b, "memplan: 1\nname: %q\n", strings.TrimSuffix(name, ".py"))
	if v := x.Release(); v != "" {
		fmt.Fprintf(&b, "torch: %q\n", v)
	}
	var keys []string
	switch {
	case x.GPU.Key != "":
		keys = append(keys, fmt.Sprintf("gpu: %q", x.GPU.Key))
	case x.GPU.Name != "":
		keys = append(keys, described(&x.GPU)...)
	}
	if x.AllocConf != "" {
		keys = append(keys, fmt.Sprintf("alloc_conf: %q", x.AllocConf))
	}
	if len(keys) > 0 {
		fmt.Fprintf(&b, "device: {%s}\n", strings.Join(keys, ", "))
	}
	return []byte(b.String())
}

// described is a GPU as PyTorch names it, which the table may not have.
func described(g *record.GPU) []string {
	if _, err := device.Lookup(g.Name); err == nil || g.Memory == 0 || g.SMs == 0 {
		return []string{fmt.Sprintf("gpu: %q", g.Name)}
	}
	return []string{fmt.Sprintf("name: %q", g.Name), fmt.Sprintf("memory: %d", int64(g.Memory)), fmt.Sprintf("arch: %q", g.Arch), fmt.Sprintf("sms: %d", g.SMs)}
}

// recordedJob is the job of a recording on the machine of a spec.
func recordedJob(s *spec.Spec, r *Recordings) (*Job, error) {
	var m *Machine
	s.Errs.Contained(func() { m = NewMachine(s, nil) })
	n := batch(r.All[0])
	if t := &s.Train.BatchSize; t.Set {
		if n = t.V; r.of(n) == nil && r.name == "" {
			s.Errs.Addf(t.At, "the recording is of one size of the batch; memplan record --batch NAME=V1,V2,V3 records several, from which others follow")
		}
	}
	if err := s.Errs.Err(); err != nil {
		return nil, err
	}
	return &Job{
		Spec: s, Machine: m, Definer: s, recorded: r, replayer: new(allocsim.Replayer),
		Program: &program.Job{Name: s.Name.V, Step: &program.Func{}, Batch: n},
	}, nil
}

// Recorded reports whether the job is a recording, and whether other sizes of its batch follow
// from it.
func (j *Job) Recorded() (is, several bool) {
	return j.recorded != nil, j.recorded != nil && j.recorded.name != "" && j.family().line != nil
}

// family are the recordings as they run on the machine of the job.
func (j *Job) family() *family {
	r, env := j.recorded, j.Machine.Env
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.made[env]
	if f != nil {
		return f
	}
	f = &family{}
	for _, x := range r.All {
		p, err := record.Play(j.meter, x, env)
		if err != nil {
			return &family{err: err}
		}
		if f.first == nil {
			f.first = p
		}
		f.at, f.played = append(f.at, batch(x)), append(f.played, played(p))
	}
	if len(f.at) >= 3 {
		f.line = newLine(f.at, f.played, &env)
	}
	r.made[env] = f
	return f
}

// playRecorded plays a recording, or derives what it would be with another size of the
// batch.
func (j *Job) playRecorded() (*Outcome, error) {
	x := j.recorded.of(j.Program.Batch)
	if x == nil {
		return j.deriveRecorded()
	}
	p, err := record.Play(j.meter, x, j.Machine.Env)
	if err != nil {
		return nil, err
	}
	return &Outcome{Job: j, Played: played(p), Doubts: p.Doubts, precision: p.Precision}, nil
}

// played is a recording as the engine would have played it.
func played(p *record.Played) *engine.Played {
	out := &engine.Played{
		Trace: p.Trace, Steps: p.Steps, Settled: true, Compared: true, Period: 1, Workspaces: p.Convs, AttentionPlans: p.AttentionPlans, Kernels: p.Kernels, Rows: p.Rows, Derived: p.Derived,
		Totals: engine.Totals{Parameters: p.Parameters, Trainable: p.Trainable, ParameterTensors: p.Tensors},
	}
	sums(out, p.Totals)
	classes := map[string]*program.Class{}
	for _, name := range p.Classes {
		c := classes[name]
		if c == nil && name != "" {
			c = &program.Class{Name: name}
			classes[name] = c
		}
		out.Classes = append(out.Classes, c)
	}
	if loop, ok := repeated(p.Trace, p.Steps); ok {
		out.Steady, out.Loops = p.Steps-1, []trace.Loop{loop}
	}
	return out
}

// sums are the totals of what was recorded, by category.
func sums(p *engine.Played, of [trace.NumCategories]tensor.Bytes) {
	t := &p.Totals
	t.ParameterBytes, t.GradientBytes, t.OptimizerStateBytes = of[trace.Parameters], of[trace.Gradients], of[trace.OptimizerState]
	t.SavedBytes, t.BatchBytes = of[trace.Activations], of[trace.Inputs]
}

// deriveRecorded is the recording with a size of the batch that was not recorded.
func (j *Job) deriveRecorded() (*Outcome, error) {
	f := j.family()
	switch {
	case f.err != nil:
		return nil, f.err
	case len(f.at) < 3:
		return nil, fmt.Errorf("%s: %d recordings tell nothing of another size of the batch; record three or more", j.Spec.Path, len(f.at))
	case f.line == nil:
		return nil, fmt.Errorf("%s: the recordings with %s = %s differ in more than sizes, or their sizes are no function of it: nothing is known of %d",
			j.Spec.Path, j.recorded.name, commas(f.at), j.Program.Batch)
	}
	r := &room{}
	p, ok := f.line.play(j.Program.Batch, r)
	if !ok {
		return nil, fmt.Errorf("%s: nothing is known of %s = %d", j.Spec.Path, j.recorded.name, j.Program.Batch)
	}
	of := f.played[0]
	p.Steps, p.Steady, p.Settled, p.Compared, p.Period, p.Classes, p.Rows, p.Derived = of.Steps, of.Steady, true, true, 1, of.Classes, of.Rows, of.Derived
	p.Totals = of.Totals
	p.Trace.Ops, p.Trace.Layers = of.Trace.Ops, of.Trace.Layers
	blocks := int32(0)
	for i := range p.Trace.Events {
		blocks = max(blocks, p.Trace.Events[i].ID)
	}
	p.Trace.Categories = make([]trace.Category, blocks+1)
	for i := range p.Trace.Categories {
		p.Trace.Categories[i] = trace.Temporaries
	}
	for old, number := range newSkeleton(of, &j.Machine.Env).numbers {
		if number > 0 {
			p.Trace.Categories[number] = of.Trace.Categories[old]
		}
	}
	sums(p, record.Totals(p.Trace))
	return &Outcome{Job: j, Played: p, Doubts: f.first.Doubts, precision: f.first.Precision}, nil
}

// commas lists numbers.
func commas(list []int64) string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, ", ")
}

// tryRecorded is Try of a recording, which is played as a whole.
func (j *Job) tryRecorded(o *Outcome) (*Outcome, error) {
	p, err := j.playRecorded()
	if err != nil {
		return nil, err
	}
	*o = *p
	return o, o.replayOnGPU(false)
}

// repeated is the last step as a loop, if it does what the step before did: the same
// sizes in the same order, and frees of what was made at the same places of this step or
// of the one before.
func repeated(tr *trace.Trace, steps int) (trace.Loop, bool) {
	type step struct {
		begin, end int
		born       []int32       // blocks in order
		at         map[int32]int // their places
	}
	of := func(n int) *step {
		s := &step{begin: -1, at: map[int32]int{}}
		for i := range tr.Events {
			e := &tr.Events[i]
			if int(e.Step) != n {
				continue
			}
			if s.begin < 0 {
				s.begin = i
			}
			s.end = i + 1
			if e.Kind == trace.Alloc {
				s.at[e.ID] = len(s.born)
				s.born = append(s.born, e.ID)
			}
		}
		return s
	}
	if steps < 2 {
		return trace.Loop{}, false
	}
	last, before := of(steps), of(steps-1)
	if last.begin < 0 || last.end != len(tr.Events) || last.end-last.begin != before.end-before.begin {
		return trace.Loop{}, false
	}
	loop := trace.Loop{Begin: last.begin, End: last.end}
	for i := range last.end - last.begin {
		a, b := &tr.Events[before.begin+i], &tr.Events[last.begin+i]
		if a.Kind != b.Kind || a.Bytes != b.Bytes || a.Stream != b.Stream {
			return trace.Loop{}, false
		}
		if a.Kind != trace.Free {
			continue
		}
		k, here := last.at[b.ID]
		if l, same := before.at[a.ID]; here != same || here && k != l {
			return trace.Loop{}, false
		} else if here {
			continue
		}
		if k, here = before.at[b.ID]; !here {
			return trace.Loop{}, false
		}
		loop.Names = append(loop.Names, trace.Rename{From: last.born[k], To: b.ID})
	}
	return loop, true
}

// recordedSettings says what decides the figures of a recording.
func (o *Outcome) recordedSettings(r *report.Report) {
	r.Params, r.Deciding, r.Assumed = map[string]any{}, []string{}, []string{}
	r.Train.Precision, r.Train.Loop, r.Train.Input = o.precision, "recorded", "recorded"
}

// unplayed says what of a recording is not known: operators without a row, with what their results
// are at the peak, what could not be pretended, and answers that were made up.
func (o *Outcome) unplayed() []note.Note {
	j := o.Job
	if j.recorded == nil {
		return nil
	}
	var out []note.Note
	tr := o.Played.Trace
	live := map[string]tensor.Bytes{}
	var sum tensor.Bytes
	for _, i := range allocsim.LiveAt(tr.Events, o.Free.PeakAllocated.Event) {
		e := &tr.Events[i]
		live[tr.Ops[e.Op]] += e.Bytes
		sum += e.Bytes
	}
	for _, d := range o.Doubts {
		name := strings.TrimPrefix(d.Op, "aten::")
		base, _, _ := strings.Cut(name, ".")
		share := 100 * float64(live[base]) / float64(max(sum, 1))
		out = append(out, note.NoRow.New("%s (%s) is counted by its results alone: %s; they are %.1f %% of the peak", d.Op, report.Plural(int64(d.Calls), "call"), d.Why, share).OfOp(base))
	}
	answers := map[string]int{}
	var asked []string
	rec := j.recorded.All[0]
	for i := range rec.Lines {
		switch l := &rec.Lines[i]; l.Kind {
		case record.Doubt:
			out = append(out, note.NotPretended.New("%s%s", l.Text, rec.At(l.Frame)))
		case record.Asked:
			text := fmt.Sprintf("%s is taken to be %s%s", l.Name, l.Text, rec.At(l.Frame))
			if answers[text]++; answers[text] == 1 {
				asked = append(asked, text)
			}
		case record.End:
			if l.Name == "error" {
				out = append(out, note.EndedEarly.New("the script failed while it was recorded: %s%s; its figures are those of what ran before", l.Text, rec.At(l.Frame)))
			}
		}
	}
	if f := j.recorded.name; f != "" && j.family().line == nil {
		out = append(out, note.NoLine.New("the recordings with %s = %s differ in more than sizes, or their sizes are no function of it: nothing follows for others", f, commas(j.family().at)))
	}
	const most = 5
	for i, text := range asked {
		if i == most {
			out = append(out, note.Answered.New("and %d more values that the script read back", len(asked)-most))
			break
		}
		out = append(out, note.Answered.New("a value that the script read back: %s", text))
	}
	return out
}
