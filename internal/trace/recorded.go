package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Recorded are the events of a run, by step: setup, step1, step2, ...
//
// Who records writes [id, bytes] and -id. Files keep a shorter form, in which
// equal layers look the same and a change stays where it is: an allocation is its
// bytes, and a free is -n for the block that is the n-th youngest of all that were
// allocated since the start, dead or alive. Both are read; the second is written.
type Recorded map[string][]RecordedEvent

// UnmarshalJSON reads either form.
func (r *Recorded) UnmarshalJSON(b []byte) error {
	var lists map[string][]RecordedEvent
	if err := json.Unmarshal(b, &lists); err != nil {
		return err
	}
	names, err := stepNames(lists)
	if err != nil {
		return err
	}
	born, kept := int64(0), false // kept: in the form of files
	for _, name := range names {
		list := lists[name]
		for i := range list {
			switch e := &list[i]; {
			case e.Bytes > 0 && e.ID == 0: // a request that failed
			case e.Bytes > 0: // [id, bytes]
				if kept {
					return fmt.Errorf("%s, event %d: an allocation has an id, and others have none", name, i)
				}
				born++
			case e.ID > 0: // bytes
				if born > 0 && !kept {
					return fmt.Errorf("%s, event %d: an allocation has no id, and others have one", name, i)
				}
				kept = true
				born++
				e.Bytes, e.ID = tensor.Bytes(e.ID), born
			case kept && e.ID < 0:
				if -e.ID > born {
					return fmt.Errorf("%s, event %d: frees the %d-th youngest of %d blocks", name, i, -e.ID, born)
				}
				e.ID = -(born + e.ID + 1)
			}
		}
	}
	*r = lists
	return nil
}

// MarshalJSON writes the form of files.
func (r Recorded) MarshalJSON() ([]byte, error) {
	names, err := stepNames(r)
	if err != nil {
		return nil, err
	}
	birth := map[int64]int64{}
	var b strings.Builder
	for i, name := range names {
		fmt.Fprintf(&b, "%c%q:[", "{,"[min(i, 1)], name)
		for k, e := range r[name] {
			if k > 0 {
				b.WriteByte(',')
			}
			n := int64(e.Bytes)
			switch {
			case e.ID > 0 && n <= 0:
				return nil, fmt.Errorf("%s, event %d: an allocation of %d bytes", name, k, n)
			case e.ID > 0:
				birth[e.ID] = int64(len(birth)) + 1
			case birth[-e.ID] > 0:
				n = birth[-e.ID] - int64(len(birth)) - 1
			}
			b.WriteString(strconv.FormatInt(n, 10))
		}
		b.WriteByte(']')
	}
	if len(names) == 0 {
		b.WriteByte('{')
	}
	return []byte(b.String() + "}"), nil
}

// stepNames lists setup and the steps in the order in which they ran.
func stepNames(lists map[string][]RecordedEvent) ([]string, error) {
	number := map[string]int{}
	for name := range lists {
		digits, _ := strings.CutPrefix(name, "step")
		n, _ := strconv.Atoi(digits)
		if stepName(n) != name {
			return nil, fmt.Errorf("events of %q: want setup, step1, step2 and so on", name)
		}
		number[name] = n
	}
	return slices.SortedFunc(maps.Keys(lists), func(a, b string) int { return number[a] - number[b] }), nil
}
