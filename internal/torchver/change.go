package torchver

import "slices"

// Change is a difference of a later release from Recorded that reaches memory.
type Change struct {
	Since  Version // the first release that has it
	Until  Version // the first that has it no more; zero: all later ones have it
	Area   string  // of PyTorch
	What   string  // changed
	Source string  // the pull request or commit that changed it, or the files that differ
	Held   string  // the test that fails without it, as "PACKAGE TEST"; "": it is not modelled
	Left   string  // of one that is not modelled, what that does to figures
}

// The areas of changes, in the order of docs/releases.md.
const (
	caching   = "caching allocator"
	libraries = "cuBLAS, cuBLASLt and cuDNN"
	kernels   = "operators"
	stepping  = "optimizers"
	python    = "Python: training, FSDP2, DDP, checkpoints"
	wheels    = "wheels"
)

var areas = []string{caching, libraries, kernels, stepping, python, wheels}

// changes are all rows, in the order in which they are made.
var changes []*Change

// change makes a row.
func change(c Change) *Change {
	changes = append(changes, &c)
	return &c
}

// Has reports whether a release has a change.
func (v Version) Has(c *Change) bool {
	return v.AtLeast(c.Since) && (c.Until == Version{} || !v.AtLeast(c.Until))
}

// Changes are all rows, by release and area.
func Changes() []*Change {
	return slices.SortedFunc(slices.Values(changes), func(a, b *Change) int {
		if a.Since != b.Since {
			if a.Since.AtLeast(b.Since) {
				return 1
			}
			return -1
		}
		if a.Area != b.Area {
			return slices.Index(areas, a.Area) - slices.Index(areas, b.Area)
		}
		return slices.Index(changes, a) - slices.Index(changes, b)
	})
}
