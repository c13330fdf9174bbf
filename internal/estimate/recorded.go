package estimate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// RecordedText is the spec of a recording: the machine that was pretended, and the version of PyTorch.
func RecordedText(path string, r *record.Recording) []byte {
	var b strings.Builder
	name := filepath.Base(path)
	if len(r.Argv) > 0 {
		name = filepath.Base(r.Argv[0])
	}
	fmt.Fprintf(&b, "memplan: 1\nname: %q\n", strings.TrimSuffix(name, ".py"))
	if v := r.Release(); v != "" {
		fmt.Fprintf(&b, "torch: %q\n", v)
	}
	var device []string
	if r.GPU.Name != "" {
		device = append(device, fmt.Sprintf("gpu: %q", r.GPU.Name))
	}
	if r.AllocConf != "" {
		device = append(device, fmt.Sprintf("alloc_conf: %q", r.AllocConf))
	}
	if len(device) > 0 {
		fmt.Fprintf(&b, "device: {%s}\n", strings.Join(device, ", "))
	}
	return []byte(b.String())
}

// recordedJob is the job of a recording on the machine of a spec.
func recordedJob(s *spec.Spec, r *record.Recording) (*Job, error) {
	var m *Machine
	s.Errs.Contained(func() { m = NewMachine(s) })
	if err := s.Errs.Err(); err != nil {
		return nil, err
	}
	return &Job{
		Spec: s, Machine: m, Definer: s, recorded: r, replayer: new(allocsim.Replayer),
		Program: &program.Job{Name: s.Name.V, Step: &program.Func{}},
	}, nil
}

// Recorded is the recording that the job is; nil: it is a spec.
func (j *Job) Recorded() *record.Recording { return j.recorded }

// playRecorded plays a recording.
func (j *Job) playRecorded() (*Outcome, error) {
	p, err := record.Play(j.meter, j.recorded, j.Machine.Env)
	if err != nil {
		return nil, err
	}
	out := &engine.Played{
		Trace: p.Trace, Steps: p.Steps, Settled: true, Compared: true, Period: 1, Workspaces: p.Convs, Kernels: p.Kernels, Rows: p.Rows, Derived: p.Derived,
		Totals: engine.Totals{
			Parameters: p.Parameters, Trainable: p.Trainable, ParameterTensors: p.Tensors, ParameterBytes: p.Totals[trace.Parameters],
			GradientBytes: p.Totals[trace.Gradients], OptimizerStateBytes: p.Totals[trace.OptimizerState], SavedBytes: p.Totals[trace.Activations], BatchBytes: p.Totals[trace.Inputs],
		},
	}
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
	return &Outcome{Job: j, Played: out, Doubts: p.Doubts, precision: p.Precision}, nil
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
	j := o.Job
	r.Params, r.Deciding, r.Assumed = map[string]any{}, []string{}, []string{}
	for name, v := range j.recorded.Batch {
		if n, ok := v.(float64); ok {
			r.Params[name] = int64(n)
			r.Deciding = append(r.Deciding, name)
		}
	}
	slices.Sort(r.Deciding)
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
	for i := range j.recorded.Lines {
		switch l := &j.recorded.Lines[i]; l.Kind {
		case record.Doubt:
			out = append(out, note.NotPretended.New("%s%s", l.Text, j.recorded.At(l.Frame)))
		case record.Asked:
			text := fmt.Sprintf("%s is taken to be %s%s", l.Name, l.Text, j.recorded.At(l.Frame))
			if answers[text]++; answers[text] == 1 {
				asked = append(asked, text)
			}
		case record.End:
			if l.Name == "error" {
				out = append(out, note.EndedEarly.New("the script failed while it was recorded: %s%s; its figures are those of what ran before", l.Text, j.recorded.At(l.Frame)))
			}
		}
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
