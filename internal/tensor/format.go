package tensor

import "fmt"

// MemoryFormat is an order of dimensions, by PyTorch's name (c10::MemoryFormat); "" is
// PreserveFormat.
type MemoryFormat string

// The memory formats.
const (
	PreserveFormat   MemoryFormat = "preserve_format" // the source's own
	ContiguousFormat MemoryFormat = "contiguous_format"
	ChannelsLast2d   MemoryFormat = "channels_last"
	ChannelsLast3d   MemoryFormat = "channels_last_3d"
)

// formatRanks are the numbers of dimensions that formats are for; others are for any.
var formatRanks = map[MemoryFormat]int{ChannelsLast2d: 4, ChannelsLast3d: 5}

// LastFormat is the channels-last format of tensors with so many dimensions, "" if there
// is none.
func LastFormat(rank int) MemoryFormat {
	for f, n := range formatRanks {
		if n == rank {
			return f
		}
	}
	return ""
}

// InFormat is the layout of a new tensor of l's sizes in a format.
func (l *Layout) InFormat(f MemoryFormat) (Layout, error) {
	if n := formatRanks[f]; n != 0 && l.Rank() != n {
		return Layout{}, fmt.Errorf("%s is for tensors of %d dimensions, not for shape %v", f, n, l.Size)
	}
	switch f {
	case ContiguousFormat:
		return Contiguous(l.Size), nil
	case ChannelsLast2d, ChannelsLast3d:
		return ChannelsLast(l.Size), nil
	}
	return l.LikeDense(), nil
}

// Suggests is the format that l's strides suggest (suggest_memory_format).
func (l *Layout) Suggests() MemoryFormat {
	if l.IsChannelsLast() {
		return LastFormat(l.Rank())
	}
	return ContiguousFormat
}
