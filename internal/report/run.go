package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// RunVersion is the version of the JSON of Run.
const RunVersion = 2

// Run is what came of executing a job, beside what was predicted.
type Run struct {
	Version     int             `json:"memplan_run"`
	Spec        string          `json:"spec"`
	Backend     string          `json:"backend"` // cpu, cuda or torch
	Device      string          `json:"device"`
	Steps       int             `json:"steps"`
	Resumed     int             `json:"resumed_after,omitempty"` // the last step of the run that this one goes on with; Steps, Losses and StepMS are those after it
	Ranks       int             `json:"ranks,omitempty"`         // processes that were measured, with torch; the largest of their figures count
	Losses      []Loss          `json:"losses"`                  // by step; none where the backend does not tell
	StepMS      []float64       `json:"step_ms"`
	BatchSize   int64           `json:"batch_size,omitempty"`  // samples of a batch; where the backend tells
	Verify      *RunVerify      `json:"verify,omitempty"`      // the first losses against those in float64, where that was asked for
	Host        *RunHost        `json:"host,omitempty"`        // of a run on the CPU
	Data        *RunData        `json:"data,omitempty"`        // of files; nil: they were made up
	Evaluations []RunEvaluation `json:"evaluations,omitempty"` // between the steps, in their order; where the backend tells
	Predicted   RunBytes        `json:"predicted"`
	Measured    RunBytes        `json:"measured"`
	Trace       RunTrace        `json:"trace"`
	Within      bool            `json:"within_tolerance"`  // the peaks, or that the job runs out of memory
	Stopped     string          `json:"stopped,omitempty"` // what ended the run before its last step, so that nothing is compared
	Warnings    []string        `json:"warnings"`          // the texts of Notes
	Notes       []note.Note     `json:"notes"`

	// Agrees and SelfCheck say that each allocation and free is the predicted one, too.
	// PyTorch agrees, or does not. What memplan runs itself only checks itself: the
	// engine and the operators that were played are those that predicted. One of them
	// is there.
	Agrees    *bool `json:"agrees,omitempty"`
	SelfCheck *bool `json:"self_check,omitempty"`
}

// RunData are the samples of files.
type RunData struct {
	Samples    int64 `json:"samples"`                      // that are trained on
	Validation int64 `json:"validation_samples,omitempty"` // that only evaluations see
}

// RunVerify compares the losses of the first steps with those that the same job gives in
// float64, from the same weights and data.
type RunVerify struct {
	Steps     int     `json:"steps"`
	Reference []Loss  `json:"reference"`          // the losses in float64
	Largest   Loss    `json:"largest_difference"` // as a share of the loss in float64
	Allowed   float64 `json:"allowed_difference"`
	Within    bool    `json:"within"`
}

// RunHost is what the process takes of host memory, of a run on the CPU.
type RunHost struct {
	ExpectedBytes tensor.Bytes `json:"expected_bytes"`       // as far as it is known before
	PeakBytes     tensor.Bytes `json:"peak_bytes,omitempty"` // so far, of the whole process; where the system tells
}

// RunEvaluation is what an evaluation gave. What its statements do not compute is not there.
type RunEvaluation struct {
	Step        int      `json:"eval_after_step"`       // 0: before the first
	Loss        *Loss    `json:"loss,omitempty"`        // the mean over the batches, each counted by its samples
	Accuracy    *float64 `json:"accuracy,omitempty"`    // of 1: how many predictions are right, where a loss compares classes
	Perplexity  *Loss    `json:"perplexity,omitempty"`  // e to the mean of -log p, where the classes are the words of an input
	Predictions int64    `json:"predictions,omitempty"` // of which Accuracy is a share
	Samples     int64    `json:"samples,omitempty"`
	Batches     int      `json:"batches"`
}

// text is an evaluation in words.
func (e *RunEvaluation) text() string {
	var parts []string
	if e.Loss != nil {
		parts = append(parts, fmt.Sprintf("loss %.4g", float64(*e.Loss)))
	}
	if e.Accuracy != nil {
		parts = append(parts, fmt.Sprintf("accuracy %.2f %%", 100**e.Accuracy))
	}
	if e.Perplexity != nil {
		parts = append(parts, fmt.Sprintf("perplexity %.4g", float64(*e.Perplexity)))
	}
	return strings.Join(parts, ", ")
}

// Add adds notes; it is the only way to.
func (r *Run) Add(notes ...note.Note) {
	r.Notes, r.Warnings = append(r.Notes, notes...), append(r.Warnings, note.Texts(notes)...)
}

// Conclude says whether the run is as predicted, as far as its backend can tell, and
// returns it.
func (r *Run) Conclude(within bool) bool {
	r.Within = within
	same := within && r.Trace.Equal
	if r.Backend == TorchBackend {
		r.Agrees = &same
	} else {
		r.SelfCheck = &same
	}
	return same
}

// TorchBackend is the backend that is PyTorch itself.
const TorchBackend = "torch"

// Verdict is the first words of a run that came to its end.
func (r *Run) Verdict() string {
	verdict := "DIFFERS"
	switch {
	case r.Agrees != nil && *r.Agrees:
		verdict = "AGREES"
	case r.SelfCheck != nil && *r.SelfCheck:
		verdict = "PASSED"
	case r.Within:
		verdict = "DIFFERS WITHIN TOLERANCE"
	}
	if r.SelfCheck != nil {
		verdict = "SELF-CHECK " + verdict
	}
	return verdict
}

// Loss is one that was computed. JSON has no infinities and no NaN: they are null.
type Loss float64

// MarshalJSON implements json.Marshaler.
func (l Loss) MarshalJSON() ([]byte, error) {
	if f := float64(l); math.IsInf(f, 0) || math.IsNaN(f) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(l))
}

// RunBytes are the three numbers, at their peaks. DeviceBytes is 0 where the
// backend has no context.
type RunBytes struct {
	AllocatedBytes tensor.Bytes `json:"allocated_bytes"`
	ReservedBytes  tensor.Bytes `json:"reserved_bytes"`
	DeviceBytes    tensor.Bytes `json:"device_bytes"`
	OutOfMemory    bool         `json:"out_of_memory"` // the job ran out of memory
	OOM            *OOM         `json:"oom,omitempty"` // where; of PyTorch the step and the message alone
}

// RunTrace compares the allocations and frees one by one, but for the workspaces of
// cuDNN's convolutions, which depend on the machine.
type RunTrace struct {
	Events                int          `json:"events"`
	Equal                 bool         `json:"equal"`
	FirstDifference       string       `json:"first_difference,omitempty"`
	Workspaces            int          `json:"workspaces,omitempty"` // with torch; not among the events
	LargestWorkspaceBytes tensor.Bytes `json:"largest_workspace_bytes,omitempty"`
}

// median is the middle of some figures; 0 of none.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Difference is what was measured beyond what was predicted, as a share.
func Difference(predicted, measured tensor.Bytes) float64 {
	if predicted == 0 {
		return 0
	}
	return float64(measured-predicted) / float64(predicted)
}

// RunFormat is one way to print a run.
type RunFormat = FormatOf[*Run, RunOptions]

// RunOptions change what is printed.
type RunOptions struct {
	Width int // of the terminal; 0: text is not for one
}

// RunFormats are the formats of a run.
var RunFormats FormatTable[*Run, RunOptions]

var (
	_ = RunFormats.Add(RunFormat{Name: "text", Doc: "for people: predicted and measured, side by side", Rank: 0, Write: writeRunText})
	_ = RunFormats.Add(RunFormat{
		Name: "json", Doc: "for programs: everything, bytes as integers", Rank: 1,
		Write: func(w io.Writer, r *Run, _ RunOptions) error { return JSON(w, r) },
	})
)

func writeRunText(w io.Writer, r *Run, o RunOptions) error {
	by := r.Backend
	if r.Device != r.Backend {
		by += fmt.Sprintf(" (%s)", r.Device)
	}
	if r.Stopped != "" {
		_, err := printable.Fprintf(w, "STOPPED: %s, executed by %s, ended after %s\n", r.Spec, by, Plural(int64(r.Steps), "step"))
		return err
	}
	t := Table{Header: []string{"", "predicted", "measured", "difference"}, Numbers: []bool{false, true, true, true}, Width: o.Width}
	add := func(name string, p, m tensor.Bytes) {
		if m > 0 {
			t.Rows = append(t.Rows, []string{name, p.String(), m.String(), fmt.Sprintf("%v (%.2f %%)", m-p, 100*Difference(p, m))})
		}
	}
	oom := r.Predicted.OutOfMemory || r.Measured.OutOfMemory
	if oom {
		word := map[bool]string{true: "OOM", false: "runs"}
		t.Rows = append(t.Rows, []string{"outcome", word[r.Predicted.OutOfMemory], word[r.Measured.OutOfMemory], ""})
	}
	if !oom {
		add("allocated", r.Predicted.AllocatedBytes, r.Measured.AllocatedBytes)
		add("reserved", r.Predicted.ReservedBytes, r.Measured.ReservedBytes)
		add("device", r.Predicted.DeviceBytes, r.Measured.DeviceBytes)
	}
	steps := Plural(int64(r.Steps), "step")
	if r.Resumed > 0 {
		steps += fmt.Sprintf(" after the first %d", r.Resumed)
	}
	printable.Fprintf(w, "%s: the prediction for %s, executed by %s, %s\n\n", r.Verdict(), r.Spec, by, steps)
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	switch {
	case r.Trace.Equal:
		beside := ""
		if n := r.Trace.Workspaces; n > 0 {
			beside = fmt.Sprintf("; in addition %s of cuDNN, of at most %v", Plural(int64(n), "workspace"), r.Trace.LargestWorkspaceBytes)
		}
		printable.Fprintf(w, "all %d allocations and frees are the predicted ones, in their order%s\n", r.Trace.Events, beside)
	case r.Trace.FirstDifference != "":
		printable.Fprintf(w, "the allocations differ: %s\n", r.Trace.FirstDifference)
	}
	if r.SelfCheck != nil {
		fmt.Fprintln(w, "the engine and the operators are those of the prediction; to compare with PyTorch: --backend torch")
	}
	switch n := len(r.Losses); {
	case n == 1:
		printable.Fprintf(w, "loss %.4g\n", r.Losses[0])
	case n > 1:
		printable.Fprintf(w, "loss %.4g in the first step, %.4g in the last\n", r.Losses[0], r.Losses[n-1])
	}
	switch n := len(r.Evaluations); {
	case n > 1:
		first, last := &r.Evaluations[0], &r.Evaluations[n-1]
		printable.Fprintf(w, "evaluation %s after step %d, %s after step %d\n", first.text(), first.Step, last.text(), last.Step)
	case n == 1:
		printable.Fprintf(w, "evaluation %s after step %d\n", r.Evaluations[0].text(), r.Evaluations[0].Step)
	}
	if ms := median(r.StepMS); ms > 0 && r.BatchSize > 0 {
		printable.Fprintf(w, "%.4g ms a step, %.4g samples a second (median)\n", ms, float64(r.BatchSize)/ms*1000)
	}
	if v := r.Verify; v != nil {
		word := map[bool]string{true: "those in float64", false: "NOT those in float64"}[v.Within]
		printable.Fprintf(w, "the losses of the first %s are %s: at most %.2g of them away, %.2g allowed\n", Plural(int64(v.Steps), "step"), word, float64(v.Largest), v.Allowed)
	}
	if h := r.Host; h != nil && h.PeakBytes > 0 {
		printable.Fprintf(w, "host memory of the process: %v at its peak, about %v expected\n", h.PeakBytes, h.ExpectedBytes)
	}
	for _, warning := range r.Warnings {
		printable.Fprintf(w, "note: %s\n", warning)
	}
	return nil
}
