package allocsim

import (
	"bufio"
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/tensor"
)

// mapWidth is the number of characters in which Dump draws a segment.
const mapWidth = 64

// Dump writes what the allocator holds: a line of totals, then each segment by
// address with a map of it and a line for each block (offset and size in
// bytes). In the map # is in use, + is freed but pending, . is cached, and : is
// a place with blocks of several states. The text depends on nothing but the
// allocator's state.
//
//	allocated 512 B, reserved 2097152 B, inactive split 2096640 B, 1 segment
//	0x200000000000: 2.00 MiB, small pool, stream 0
//	  [:...............................................................]
//	  +0                 512  allocated, 300 requested
//	  +512           2096640  cached
func (a *Allocator) Dump(w io.Writer) error {
	out := bufio.NewWriter(w)
	segments := a.Snapshot()
	s := &a.stats
	plural := "s"
	if len(segments) == 1 {
		plural = ""
	}
	fmt.Fprintf(out, "allocated %d B, reserved %d B, inactive split %d B, %d segment%s\n",
		int64(s.AllocatedBytes.All.Current), int64(s.ReservedBytes.All.Current), int64(s.InactiveSplitBytes.All.Current),
		len(segments), plural)
	for i := range segments {
		seg := &segments[i]
		expandable := ""
		if seg.IsExpandable {
			expandable = ", expandable"
		}
		fmt.Fprintf(out, "%#x: %s, %s pool, stream %d%s\n", uint64(seg.Address), seg.TotalSize, seg.SegmentType, seg.Stream, expandable)
		fmt.Fprintf(out, "  [%s]\n", drawMap(seg))
		for _, b := range seg.Blocks {
			fmt.Fprintf(out, "  +%-12d %12d  ", uint64(b.Address-seg.Address), int64(b.Size))
			switch b.State {
			case blockStateNames[active]:
				fmt.Fprintf(out, "allocated, %d requested\n", int64(b.RequestedSize))
			case blockStateNames[pending]:
				fmt.Fprintf(out, "pending, %d requested\n", int64(b.RequestedSize))
			default:
				fmt.Fprintf(out, "cached\n")
			}
		}
	}
	return out.Flush()
}

// drawMap draws a segment in mapWidth characters, each of which stands for an
// equal part.
func drawMap(seg *SegmentInfo) string {
	signs := map[string]byte{
		blockStateNames[active]: '#', blockStateNames[pending]: '+', blockStateNames[inactive]: '.',
	}
	var cells [mapWidth]byte
	var at tensor.Bytes
	for _, b := range seg.Blocks {
		first, last := at*mapWidth/seg.TotalSize, (at+b.Size)*mapWidth/seg.TotalSize
		if (at+b.Size)*mapWidth%seg.TotalSize == 0 {
			last-- // ends exactly between two cells
		}
		for c := first; c <= last; c++ {
			if sign := signs[b.State]; cells[c] == 0 || cells[c] == sign {
				cells[c] = sign
			} else {
				cells[c] = ':'
			}
		}
		at += b.Size
	}
	return string(cells[:])
}
