package accuracy

import (
	"fmt"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
	"github.com/memplan/memplan/specs"
)

// Case is the comparison of one recording with its prediction.
type Case struct {
	Name, Family string
	Skipped      string // what is not modelled; "" if compared
	Equal        bool   // the event lists, in setup and each step
	Difference   string // the first one
	Steps        []StepPeaks
}

// StepPeaks are predicted and recorded peaks of a step.
type StepPeaks struct {
	Allocated, RecordedAllocated tensor.Bytes
	Reserved, RecordedReserved   tensor.Bytes
}

// Play predicts the events of a spec.
func Play(r *Recording) (*engine.Played, error) {
	s, err := spec.Parse(r.Name+".yaml", []byte(r.Spec()), spec.Options{})
	if err != nil {
		return nil, err
	}
	env := r.Env()
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return nil, err
	}
	return engine.Play(g.Job, env, nil, len(r.Steps))
}

// Compare holds the prediction against the recording.
func Compare(r *Recording) (*Case, error) {
	c := &Case{Name: r.Name, Family: r.Family()}
	if ok, why := r.InScope(); !ok {
		c.Skipped = why
		return c, nil
	}
	p, err := Play(r)
	if err != nil {
		return nil, err
	}
	c.Difference = Difference(r.Events, p.Trace.Events)
	c.Equal = c.Difference == ""
	conf, err := allocsim.ParseConfig(r.Config.AllocConf, torchver.Default)
	if err != nil {
		return nil, err
	}
	res, err := allocsim.Replay(p.Trace.Events, allocsim.ReplayOptions{Config: conf})
	if err != nil {
		return nil, err
	}
	for i, s := range r.Steps {
		sp := StepPeaks{RecordedAllocated: s.PeakAllocated, RecordedReserved: s.PeakReserved}
		for _, q := range res.Steps {
			if q.Step == i+1 {
				sp.Allocated, sp.Reserved = q.PeakAllocated.Allocated, q.PeakReserved.Reserved
			}
		}
		c.Steps = append(c.Steps, sp)
	}
	return c, nil
}

// step maps an event to the recorded list that it belongs to. With late, what
// dies when a step returns was recorded at the start of the next one.
func step(e *trace.Event, late bool) int {
	if late && e.Phase == trace.Return {
		return int(e.Step) + 1
	}
	return int(e.Step)
}

// Difference compares event lists: sizes and order, ids by birth. It returns
// "" if they are equal, else a description of the first difference.
func Difference(recorded map[string][]RecordedEvent, events []trace.Event) string {
	return difference(recorded, events, true)
}

func difference(recorded map[string][]RecordedEvent, events []trace.Event, late bool) string {
	at := 0
	recBirth, birth := map[int64]int{}, map[int32]int{}
	nRec, n := 0, 0
	for k := 0; ; k++ {
		name := "setup"
		if k > 0 {
			name = fmt.Sprintf("step%d", k)
		}
		rec, ok := recorded[name]
		if !ok {
			return ""
		}
		for i, e := range rec {
			for at < len(events) && events[at].Kind != trace.Alloc && events[at].Kind != trace.Free {
				at++
			}
			if at >= len(events) || step(&events[at], late) != k {
				return fmt.Sprintf("%s, event %d: nothing predicted, recorded %s", name, i, showRecorded(e, recBirth))
			}
			x := &events[at]
			at++
			if e.ID > 0 {
				nRec++
				recBirth[e.ID] = nRec
			}
			if x.Kind == trace.Alloc {
				n++
				birth[x.ID] = n
			}
			same := (e.ID > 0) == (x.Kind == trace.Alloc)
			if same && e.ID > 0 {
				same = e.Bytes == x.Bytes
			} else if same {
				same = recBirth[-e.ID] == birth[x.ID]
			}
			if !same {
				return fmt.Sprintf("%s, event %d: predicted %s, recorded %s", name, i, show(x, birth), showRecorded(e, recBirth))
			}
		}
		for at < len(events) && (step(&events[at], late) == k && (events[at].Kind == trace.Alloc || events[at].Kind == trace.Free)) {
			if _, more := recorded[fmt.Sprintf("step%d", k+1)]; !more && events[at].Phase == trace.Return {
				break
			}
			return fmt.Sprintf("%s, event %d: predicted %s, recorded nothing", name, len(rec), show(&events[at], birth))
		}
	}
}

func show(e *trace.Event, birth map[int32]int) string {
	if e.Kind == trace.Alloc {
		return fmt.Sprintf("+%d (block %d)", e.Bytes, e.ID)
	}
	return fmt.Sprintf("- block %d", birth[e.ID])
}

func showRecorded(e RecordedEvent, birth map[int64]int) string {
	if e.ID > 0 {
		return fmt.Sprintf("+%d", e.Bytes)
	}
	return fmt.Sprintf("- block %d", birth[-e.ID])
}
