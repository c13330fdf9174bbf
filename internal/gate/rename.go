package gate

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/spec"
)

// alike is the share of values that a spec has in common with another one, above
// which it is taken for the same under another name.
const alike = 0.5

// Renames finds which of the specs that are gone a new one was: for the index of
// each new text, the index of the text that is gone. The most alike find each
// other first.
func Renames(gone, added [][]byte) map[int]int {
	type pair struct {
		now, was int
		share    float64
	}
	var pairs []pair
	gone, added = gone[:min(len(gone), maxCompared)], added[:min(len(added), maxCompared)]
	was := make([]map[string]int, len(gone))
	for i, text := range gone {
		was[i] = values(text)
	}
	for i, text := range added {
		own := values(text)
		for k := range gone {
			if share := common(own, was[k]); share > alike || bytes.Equal(text, gone[k]) {
				pairs = append(pairs, pair{i, k, share})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.share, a.share) })
	out := map[int]int{}
	taken := map[int]bool{}
	for _, p := range pairs {
		if _, found := out[p.now]; !found && !taken[p.was] {
			out[p.now] = p.was
			taken[p.was] = true
		}
	}
	return out
}

// versionKey is in every spec, and makes none like another.
const versionKey = "memplan"

// maxCompared bounds how many specs are looked through for those with another name.
const maxCompared = 1000

// values counts the values of a spec, each with its path: order, comments and ways
// of writing do not count. Of what cannot be read there are none.
func values(text []byte) map[string]int {
	out := map[string]int{}
	d := spec.ReadDocument("", text)
	var walk func(path string, v *spec.Value)
	walk = func(path string, v *spec.Value) {
		for _, p := range v.Pairs {
			if path != "" || p.Key.Str != versionKey {
				walk(path+"."+p.Key.Str, p.Value)
			}
		}
		for _, it := range v.Items {
			walk(path+".-", it)
		}
		if v.Kind != spec.Map && v.Kind != spec.List {
			out[path+"="+v.Str]++
		}
	}
	if d.Root != nil {
		walk("", d.Root)
	}
	return out
}

// common is the share of values that two specs have in common.
func common(a, b map[string]int) float64 {
	same, all := 0, 0
	for value, n := range a {
		same += 2 * min(n, b[value])
		all += n
	}
	for _, n := range b {
		all += n
	}
	return float64(same) / float64(max(all, 1))
}
