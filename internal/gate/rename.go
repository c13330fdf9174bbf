package gate

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// alike is the share of lines that a spec has in common with another one, above
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
	lines := make([]map[string]int, len(gone))
	for i, text := range gone {
		lines[i] = lineCounts(text)
	}
	for i, text := range added {
		own := lineCounts(text)
		for k := range gone {
			if share := common(own, lines[k]); share > alike || bytes.Equal(text, gone[k]) {
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

// versionLine is in every spec, and makes none like another.
const versionLine = "memplan: 1"

// lineCounts counts the lines of a text that say something.
func lineCounts(text []byte) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line != versionLine {
			out[line]++
		}
	}
	return out
}

// common is the share of lines that two texts have in common.
func common(a, b map[string]int) float64 {
	same, all := 0, 0
	for line, n := range a {
		same += 2 * min(n, b[line])
		all += n
	}
	for _, n := range b {
		all += n
	}
	return float64(same) / float64(max(all, 1))
}
