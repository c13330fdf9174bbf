package host

import (
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Held says what the tensors of a trace in host memory take at most: in ordinary
// memory, and in page-locked memory as the caching host allocator takes it. That
// one hands a block out again only for a request of the same power of two, and
// gives none back, so that each power of two counts with the most blocks that it
// ever had. pinned says of each block where it is.
func Held(events []trace.Event, pinned []bool) (ordinary, locked tensor.Bytes, err error) {
	var s checked
	size := map[int32]tensor.Bytes{}
	var now tensor.Bytes
	type class struct{ live, most int64 }
	classes := map[tensor.Bytes]class{}
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == trace.Alloc && pinned[e.ID]:
			n := PinnedSize(e.Bytes)
			size[e.ID] = n
			c := classes[n]
			c.live++
			c.most = max(c.most, c.live)
			classes[n] = c
		case e.Kind == trace.Alloc:
			size[e.ID] = e.Bytes
			now = s.add(now, e.Bytes)
			ordinary = max(ordinary, now)
		case e.Kind == trace.Free && pinned[e.ID]:
			n := size[e.ID]
			c := classes[n]
			c.live--
			classes[n] = c
		case e.Kind == trace.Free:
			now -= size[e.ID]
		}
	}
	for n, c := range classes {
		locked = s.add(locked, s.mul(n, c.most))
	}
	return ordinary, locked, s.err
}
