// Package torchver says what changed in which PyTorch.
//
// memplan models PyTorch 2.6 exactly and later releases by their differences.
// Each difference is one named predicate (or one row of a table) here, with
// the pull request or source that made it, so that no other package compares
// version numbers. A predicate names the behaviour, not the release: callers
// ask v.CublasWorkspaceTransient(), never v.AtLeast(2, 15).
package torchver

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a release line of PyTorch. Patch releases do not change what
// memplan models, so they are not kept.
type Version struct {
	Major, Minor int
}

// The releases that memplan knows. Behaviour before Oldest differs in ways
// that are not recorded here, and nothing is known of what follows Newest. What
// follows Released is read from the main branch, and may still change.
var (
	Oldest   = Version{2, 6}
	Released = Version{2, 14}
	Newest   = Version{2, 15}
	Default  = Version{2, 14}
)

// Recorded is the release of the recordings of PyTorch's CUDA build, which is modelled
// exactly: later ones are modelled by their differences from it.
var Recorded = Version{2, 6}

// Auto stands in place of a release for the one that the project's files ask for.
const Auto = "auto"

// Names lists the releases, the newest first.
func Names() []string {
	var out []string
	for v := Newest; v.AtLeast(Oldest); v.Minor-- {
		out = append(out, v.String())
	}
	return out
}

// Parse reads a release such as "2.6", "2.6.0", "v2.11.1" or torch.__version__
// ("2.6.0+cu124"). The zero patch level may be left out, the major and minor
// numbers may not. A release outside Oldest to Newest is an error, since
// memplan would have to guess what it does.
func Parse(s string) (Version, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), "v"), "+")
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}, malformed(s)
	}
	var n [3]int
	for i, p := range parts {
		// ParseUint refuses signs and spaces; a leading zero is a slip ("2.06").
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil || len(p) > 1 && p[0] == '0' {
			return Version{}, malformed(s)
		}
		n[i] = int(v)
	}
	v := Version{n[0], n[1]}
	if !v.AtLeast(Oldest) || !Newest.AtLeast(v) {
		return Version{}, fmt.Errorf("PyTorch %s is not modelled; allowed are %s to %s", v, Oldest, Newest)
	}
	return v, nil
}

func malformed(s string) error {
	return fmt.Errorf(`%q is not a PyTorch version; allowed are %s to %s, written as "2.6" or "2.6.0"`, s, Oldest, Newest)
}

// String returns major and minor, such as "2.6".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// AtLeast reports whether v is w or later.
func (v Version) AtLeast(w Version) bool {
	return v.Major > w.Major || v.Major == w.Major && v.Minor >= w.Minor
}
