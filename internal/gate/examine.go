package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// add reports what a rule found, unless the rule is off.
func (u *unit) add(rule int, at spec.Span, format string, args ...any) {
	u.addAs(rule, Error, at, format, args...)
}

// addAs reports a finding that weighs no more than most.
func (u *unit) addAs(rule int, most Severity, at spec.Span, format string, args ...any) {
	r := &Rules[rule]
	severity := u.policy.severity(r)
	if severity == Off {
		return
	}
	f := Finding{Rule: r.ID, Name: r.Name, Severity: severity.atMost(most), File: u.Spec, Line: at.Line, Column: at.Col,
		Message: strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")}
	if len(f.Message) > maxMessage {
		f.Message = strings.ToValidUTF8(f.Message[:maxMessage], "") + "..."
	}
	if len(u.Findings) < maxFindings && !slices.Contains(u.Findings, f) {
		u.Findings = append(u.Findings, f)
	}
}

// Limits on what is told of one spec on one GPU.
const (
	maxFindings = 200
	maxMessage  = 4000
)

// at is the place that a rule's findings have by default.
func (u *unit) at(rule int) spec.Span { return u.place(append(Rules[rule].keys, "memplan")...) }

// fragmentationMatters is the share of the usable memory below which what lies
// unused is too little to be worth a word: of small jobs, segments of 2 and 20
// MiB are most of what is reserved.
const fragmentationMatters = 0.05

// examine applies the rules to an outcome, but for those of baselines.
func (u *unit) examine(o *outcome) {
	r := o.report
	v, on := &r.Verdict, "on "+r.Device.Name+": "
	switch {
	case !v.Fits:
		u.add(predictedOOM, u.at(predictedOOM), "%s%s", on, v.Reason)
	case v.Tight:
		u.add(tight, u.at(tight), "%s%s", on, v.Reason)
	}
	if want := u.policy.headroom; want != nil && v.Fits {
		if least := want.Of(r.Device.UsableBytes); v.HeadroomBytes < least {
			asked := want.String()
			if want.share >= 0 {
				asked += fmt.Sprintf(" (%v)", least)
			}
			u.add(headroom, u.at(headroom), "%s%v of %v usable memory is left free, less than %s", on, v.HeadroomBytes, r.Device.UsableBytes, asked)
		}
	}
	if v.Leak != nil && v.OOM != nil { // else a warning says so
		_, each, _ := strings.Cut(v.Reason, "\n")
		u.add(leak, u.leakAt(), "%s%s; it dies in step %d", on, each, v.OOM.Step)
	}
	frag, most := r.Allocator.FragmentationBytes, u.policy.fragmentation.Of(r.Peak.ReservedBytes)
	if frag > most && float64(frag) >= fragmentationMatters*float64(r.Device.UsableBytes) {
		u.add(fragmentation, u.at(fragmentation), "%s%v of the %v that are reserved at the peak (%s) are never in use at once, more than %v",
			on, frag, r.Peak.ReservedBytes, percent(frag, r.Peak.ReservedBytes), u.policy.fragmentation)
	}
	u.host(r.Host, tensor.Bytes(max(r.Train.Ranks, 1)))
	u.leftOut = o.OperatorNotes()
	for i, n := range r.NotModelled {
		heaviest := Note
		if i < len(o.Job.NotModelled) { // asked for by the spec
			heaviest = Error
		}
		if !slices.Contains(u.leftOut, n) {
			u.addAs(notModelled, heaviest, u.subject(n, o), "not modelled: %s", n)
		}
	}
	if u.policy.severity(&Rules[notModelled]) == Off {
		u.leftOut = nil
	}
	for _, w := range r.Warnings {
		u.warning(w, on, o)
	}
}

// host applies the rules about the machine's own memory, which so many processes share.
func (u *unit) host(h *report.Host, all tensor.Bytes) {
	if h == nil {
		return
	}
	if limit := h.SharedMemoryLimitBytes; limit > 0 && all*h.SharedMemoryBytes > limit {
		u.add(sharedMemory, u.at(sharedMemory), "workers hand over batches in up to %v of /dev/shm, which has %v: they die of a bus error", all*h.SharedMemoryBytes, limit)
	}
	need := fmt.Sprintf("%v of host memory needed while %s, %v there", h.AllBytes, report.HostPhases[h.Phase], h.LimitBytes)
	switch limit := h.LimitBytes; {
	case limit == 0:
	case h.AllBytes > limit:
		u.add(hostRAM, u.at(hostRAM), "%s", need)
	case h.AllHighBytes > limit:
		u.addAs(hostRAM, Warning, u.at(hostRAM), "%s; with what is assumed at its worst it would be %v", need, h.AllHighBytes)
	}
}

// warnings tells by how a warning of the report begins which rule it belongs to;
// others are of estimateWarning.
var warnings = []struct {
	prefix string
	rule   int // -1: another rule says it
	most   Severity
}{
	{estimate.NoteAsked, -1, Off},
	{estimate.NoteGrowing, leak, Warning}, // it lives through all steps that were simulated
	{estimate.NoteHostGrowing, leak, Warning},
	{estimate.NoteGPU, gpuChanged, Error},
	{estimate.NoteUnsettled, unsettled, Error},
	{estimate.NoteUncertain, uncertain, Error},
	{estimate.NoteWorkspaces, uncertain, Error},
}

// warning files a warning of the report.
func (u *unit) warning(text, on string, o *outcome) {
	for _, w := range warnings {
		if !strings.HasPrefix(text, w.prefix) {
			continue
		}
		switch w.rule {
		case -1:
		case leak:
			u.addAs(leak, w.most, u.leakAt(), "%s%s", on, text)
		default:
			u.addAs(w.rule, w.most, u.at(w.rule), "%s%s", on, strings.Replace(text, "; see below", "", 1))
		}
		return
	}
	if slices.Contains(o.Job.Warnings, text) { // about the spec, whatever the GPU
		on = ""
	}
	u.add(estimateWarning, u.subject(text, o), "%s%s", on, text)
}

func percent(part, whole tensor.Bytes) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}
