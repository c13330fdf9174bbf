package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// add reports what a rule found, unless the rule is off.
func (u *unit) add(r *Rule, at spec.Span, format string, args ...any) {
	u.addAs(r, Error, at, format, args...)
}

// addAs reports a finding that weighs no more than most.
func (u *unit) addAs(r *Rule, most Severity, at spec.Span, format string, args ...any) {
	u.file(r, most, at, "", fmt.Sprintf(format, args...))
}

// file adds a finding, which has a code if it is a note of the report.
func (u *unit) file(r *Rule, most Severity, at spec.Span, code, message string) {
	severity := u.policy.severity(r)
	if severity == Off {
		return
	}
	f := Finding{Rule: r.ID, Name: r.Name, Severity: severity.atMost(most), File: u.Spec, Line: at.Line, Column: at.Col,
		Message: strings.ReplaceAll(message, "\n", "; "), Code: code}
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
func (u *unit) at(r *Rule) spec.Span {
	if r.at != nil {
		return r.at(u)
	}
	return u.place(append(slices.Clone(r.keys), "memplan")...)
}

// fragmentationMatters is the share of the usable memory below which
// unused memory is too little to be reported: of small jobs, segments of 2 and 20
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
		u.add(leak, u.at(leak), "%sa leak: %s; it runs out of memory in step %d", on, v.Leak.Says, v.OOM.Step)
	}
	frag, most := r.Allocator.FragmentationBytes, u.policy.fragmentation.Of(r.Peak.ReservedBytes)
	if frag > most && float64(frag) >= fragmentationMatters*float64(r.Device.UsableBytes) {
		u.add(fragmentation, u.at(fragmentation), "%s%v of the %v that are reserved at the peak (%s) are never in use at once, more than %v",
			on, frag, r.Peak.ReservedBytes, percent(frag, r.Peak.ReservedBytes), u.policy.fragmentation)
	}
	u.host(r.Host, tensor.Bytes(max(r.Train.Ranks, 1)))
	for _, leftOut := range []bool{true, false} {
		for _, n := range r.Notes {
			if n.Code.LeftOut == leftOut {
				u.note(n, on, o)
			}
		}
	}
}

// host applies the rules about host memory, which so many processes share.
func (u *unit) host(h *report.Host, all tensor.Bytes) {
	if h == nil {
		return
	}
	if limit := h.SharedMemoryLimitBytes; limit > 0 && all*h.SharedMemoryBytes > limit {
		u.add(sharedMemory, u.at(sharedMemory), "workers hand over batches in up to %v of /dev/shm, which has %v: they fail with a bus error", all*h.SharedMemoryBytes, limit)
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

// note files a note of the report under the rule of its code; on names the GPU.
func (u *unit) note(n note.Note, on string, o *outcome) {
	if n.Code == note.Operator && u.policy.severity(notModelled) != Off {
		u.leftOut = append(u.leftOut, n.Text)
	}
	r := LookupRule(n.Code.Rule)
	if r == nil {
		return
	}
	most := Error
	if n.Code.Most != "" {
		most = Severity(n.Code.Most)
	}
	text := n.Alone()
	switch {
	case n.Code.LeftOut:
		text = "not modelled: " + text
	case !n.Code.OfSpec:
		text = on + text
	}
	u.file(r, most, u.subject(r, n.Place, o), n.Code.Name, text)
}

func percent(part, whole tensor.Bytes) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}
