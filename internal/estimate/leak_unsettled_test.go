package estimate

import (
	"strings"
	"testing"
)

// TestLeakUnsettled holds that a leak says no more than was simulated: where what runs
// rarely keeps steps from settling, it is not followed until the job dies, and the report
// says so.
func TestLeakUnsettled(t *testing.T) {
	text := everyStep + "  - optimizer_step\n  - zero_grad\n  - {empty_cache: , every: 600}\n  - {keep: {of: out, in: outs, detach: true}}\n" +
		"train: {batch_size: 3000, optimizer: AdamW}\ndevice: {gpu: a100-80gb}\n"
	o, r := estimateText(t, text)
	if !r.Verdict.Fits || o.Played.Settled {
		return // it was followed
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), NoteUnsettled) {
		t.Errorf("%v, though it dies in step 6714: %q", r.Verdict.Result, r.Warnings)
	}
}
