package accuracy

import (
	"fmt"

	"github.com/memplan/memplan/internal/trace"
)

// step maps an event to the recorded list that it belongs to. With late, what
// dies when a step returns was recorded at the start of the next one.
func step(e *trace.Event, late bool) int {
	if late && e.Phase == trace.Return {
		return int(e.Step) + 1
	}
	return int(e.Step)
}

// difference compares event lists: sizes and order, ids by birth. It returns
// "" if they are equal, else a description of the first difference.
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
