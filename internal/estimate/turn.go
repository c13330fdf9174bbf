package estimate

import (
	"errors"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// turn is what a job does with batches of one length: how it starts, and a step of all
// that follow.
type turn struct {
	start, step *section
	starts      int // steps that start holds; one, where the second is like the others
}

// section is a part of a job as calls of the allocator.
type section struct {
	calls []call
	// common lists the calls that are no scratch of kernels, whose number and order may go
	// by the length.
	common  []int32
	out     []int32 // blocks that the section leaves to the next one, which frees them
	blocks  int32
	scratch int32
	mixed   bool // which calls are of which of the step's batches is not known
}

// call is one call of the allocator. Blocks of the section are counted from 0, and so is
// scratch; the k-th of those that it was left with is -1-k.
type call struct {
	bytes   tensor.Bytes // to be allocated; or freed, emptied
	block   int32
	stream  int16
	batch   uint8 // of the step's, that it belongs to
	scratch bool
	may     bool // fail: another plan of cuDNN is tried then
}

const (
	freed   tensor.Bytes = -1
	emptied tensor.Bytes = -2
)

// like reports whether sections differ in sizes and scratch alone.
func (s *section) like(t *section) bool {
	return s.blocks == t.blocks && slices.EqualFunc(s.common, t.common, func(i, k int32) bool {
		a, b := &s.calls[i], &t.calls[k]
		return a.block == b.block && (a.bytes < 0) == (b.bytes < 0) && a.stream == b.stream
	})
}

// numbers tells blocks from scratch, whose number is 0: that of kernels, and what an
// operator frees that it has allocated.
func (v *varying) numbers(p *engine.Played) func(int32) int32 {
	number := func(id int32) int32 { return id }
	if s := newSkeleton(p, &v.o.Job.Machine.Env); s != nil {
		number = func(id int32) int32 { return s.numbers[id] }
	}
	return lasting(p.Trace.Events, number)
}

// lasting are the numbers of blocks without those that an operator frees that it has
// allocated.
func lasting(events []trace.Event, number func(int32) int32) func(int32) int32 {
	most := int32(0)
	for i := range events {
		most = max(most, events[i].ID)
	}
	local := make([]bool, most+1)
	born := make([]int, most+1)
	begin := 0 // of this operator's call
	for i := range events {
		e := &events[i]
		if i > 0 && (e.Op != events[i-1].Op || e.Layer != events[i-1].Layer || e.Phase != events[i-1].Phase || e.Step != events[i-1].Step) {
			begin = i
		}
		switch e.Kind {
		case trace.Alloc:
			born[e.ID] = i
		case trace.Free:
			local[e.ID] = born[e.ID] >= begin
		}
	}
	return func(id int32) int32 {
		if local[id] {
			return 0
		}
		return number(id)
	}
}

// newTurn takes the last of the steps that were played, which is like the one before, and
// what comes before the first step that is like it.
func newTurn(p *engine.Played, numbers func(int32) int32, batches int) (*turn, error) {
	events := p.Trace.Events
	steps := int(events[len(events)-1].Step)
	if steps < playedSteps {
		return nil, errors.New("the steps that were played are too few")
	}
	born, order := map[int32]int{}, map[int32]int32{} // events, and which of its step's blocks
	var ends []int                                    // of setup and steps
	var counts []int32
	for s, i := 0, 0; s <= steps; s++ {
		n := int32(0)
		for ; i < len(events) && int(events[i].Step) <= s; i++ {
			if id := events[i].ID; events[i].Kind == trace.Alloc && numbers(id) != 0 {
				born[id], order[id] = i, n
				n++
			}
		}
		ends, counts = append(ends, i), append(counts, n)
	}
	// left lists what a step frees of the time before, in the order of its birth
	left := func(s int) (ids []int32) {
		for i := ends[s-1]; i < ends[s]; i++ {
			if e := &events[i]; e.Kind == trace.Free && numbers(e.ID) != 0 && born[e.ID] < ends[s-1] {
				ids = append(ids, e.ID)
			}
		}
		slices.SortFunc(ids, func(a, b int32) int { return born[a] - born[b] })
		return ids
	}
	last := left(steps)
	if slices.ContainsFunc(last, func(id int32) bool { return born[id] < ends[steps-2] }) {
		return nil, errors.New("a step frees what is older than the step before it, which is not modelled where lengths differ")
	}
	if counts[steps] != counts[steps-1] {
		return nil, errors.New("the steps that were played are not alike")
	}
	t := &turn{starts: steps - 1}
	for t.starts > 1 && len(left(t.starts)) == len(last) && counts[t.starts] == counts[steps] {
		t.starts--
	}
	t.start = newSection(p, 0, ends[t.starts], nil, numbers, batches)
	for _, id := range left(t.starts + 1) {
		before := int32(0)
		for s := 0; ends[s] <= born[id]; s++ {
			before += counts[s]
		}
		t.start.out = append(t.start.out, before+order[id])
	}
	t.step = newSection(p, ends[steps-1], ends[steps], last, numbers, batches)
	for _, id := range last {
		t.step.out = append(t.step.out, order[id])
	}
	return t, nil
}

// newSection makes one of events.
func newSection(p *engine.Played, from, to int, left []int32, numbers func(int32) int32, batches int) *section {
	events := p.Trace.Events[from:to]
	of := batchesOf(events, numbers, batches)
	s := &section{mixed: of == nil}
	blocks := map[int32]int32{}
	for k, id := range left {
		blocks[id] = int32(-1 - k)
	}
	for i := range events {
		e := &events[i]
		c := call{bytes: e.Bytes, stream: e.Stream}
		if of != nil {
			c.batch = of[i]
		}
		switch e.Kind {
		case trace.Alloc:
			count := &s.blocks
			if c.scratch = numbers(e.ID) == 0; c.scratch {
				count = &s.scratch
			}
			c.block = *count
			blocks[e.ID] = c.block
			*count++
			_, c.may = slices.BinarySearch(p.Workspaces.Events, from+i)
		case trace.Free:
			c.bytes, c.block, c.scratch = freed, blocks[e.ID], numbers(e.ID) == 0
		case trace.EmptyCache:
			c.bytes = emptied
		default:
			continue
		}
		if !c.scratch {
			s.common = append(s.common, int32(len(s.calls)))
		}
		s.calls = append(s.calls, c)
	}
	return s
}

// batchesOf tells to which of a step's batches each event belongs. A batch's begins when,
// after a backward pass, a forward pass does. Before the first of them, what an operator does
// as often for each batch is shared out in order. It returns nil if a step is not like that.
func batchesOf(events []trace.Event, numbers func(int32) int32, batches int) []uint8 {
	out := make([]uint8, len(events))
	switch {
	case batches == 1:
		return out
	case batches > math.MaxUint8:
		return nil
	}
	step := events[len(events)-1].Step // what comes before it is of no batch
	begin := slices.IndexFunc(events, func(e trace.Event) bool { return e.Step == step })
	forward := slices.IndexFunc(events, func(e trace.Event) bool { return e.Step == step && e.Phase == trace.Forward })
	if forward < 0 {
		return nil
	}
	now, back := 0, false
	for i := forward; i < len(events); i++ {
		switch events[i].Phase {
		case trace.Backward:
			back = true
		case trace.Forward:
			if back {
				now, back = now+1, false
			}
		}
		out[i] = uint8(min(now, batches-1))
	}
	if now < batches-1 || now > batches { // a step may compute, as for logs, after the last pass
		return nil
	}
	type kind struct {
		op    int32
		bytes tensor.Bytes
		phase trace.Phase
	}
	count, seen := map[kind]int{}, map[kind]int{}
	for pass := range 2 {
		for i := begin; i < forward; i++ {
			e := &events[i]
			if e.Kind != trace.Alloc {
				continue
			}
			k := kind{e.Op, e.Bytes, e.Phase}
			if pass == 0 {
				count[k]++
			} else if n := count[k]; n%batches == 0 {
				out[i] = uint8(seen[k] * batches / n)
				seen[k]++
			}
		}
	}
	return out
}

// feed gives an allocator the calls of a section. What belongs to a batch is that of its
// section of others, which are like this one.
func (s *section) feed(a *allocsim.Allocator, of []*section, carried []allocsim.Block, own, scratch *[]allocsim.Block) error {
	*own = slices.Grow((*own)[:0], int(s.blocks))[:s.blocks]
	most := s.scratch
	for _, t := range of {
		most = max(most, t.scratch)
	}
	*scratch = slices.Grow((*scratch)[:0], int(most))[:most]
	do := func(c *call) error {
		blocks := *own
		if c.scratch {
			blocks = *scratch
		}
		switch {
		case c.bytes == emptied:
			return a.EmptyCache()
		case c.bytes == freed && c.block < 0:
			a.Free(carried[-1-c.block])
		case c.bytes == freed:
			a.Free(blocks[c.block])
		default:
			b, err := a.Alloc(c.bytes, c.stream)
			if err != nil && !c.may {
				return err
			}
			blocks[c.block] = b
		}
		return nil
	}
	for k, i := range s.common {
		t := of[s.calls[i].batch]
		from := int32(0)
		if k > 0 {
			from = t.common[k-1] + 1
		}
		for ; from <= t.common[k]; from++ {
			if err := do(&t.calls[from]); err != nil {
				return err
			}
		}
	}
	if len(s.common) == 0 {
		return nil
	}
	for i := s.common[len(s.common)-1] + 1; int(i) < len(s.calls); i++ {
		if err := do(&s.calls[i]); err != nil {
			return err
		}
	}
	return nil
}
