// Package nearest finds the name that a misspelt one was most likely meant to
// be, for "did you mean" in error messages.
package nearest

import "strings"

// To returns the candidate that s is most likely a slip of: the one at the
// smallest edit distance, if that is at most a third of its length. Case does
// not count. Of equals the first wins. If none is near, it is the only one whose first
// words s is, as batch is of batch_size. "" means there is none. Of very many
// candidates the first alone count.
func To(s string, candidates []string) string {
	best, bestDistance := "", 0
	for _, c := range candidates[:min(len(candidates), maxCandidates)] {
		if long := len(c) - len(s); max(long, -long) > len(c)/3 {
			continue // so many letters are to be inserted or deleted at least
		}
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d <= len(c)/3 && (best == "" || d < bestDistance) {
			best, bestDistance = c, d
		}
	}
	if best != "" || s == "" {
		return best
	}
	for _, c := range candidates[:min(len(candidates), maxCandidates)] {
		if !strings.HasPrefix(c, s+"_") {
			continue
		}
		if best != "" { // it may be either
			return ""
		}
		best = c
	}
	return best
}

// maxCandidates bounds the work on hostile input.
const maxCandidates = 2000

// distance counts the letters to insert, delete, replace or swap with their
// neighbour that make b of a (optimal string alignment), on bytes.
func distance(a, b string) int {
	if len(a) > 64 { // no name is as long; bounds the work on hostile input
		return len(a)
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			d := row[j]
			if a[i] != b[j] {
				d = min(row[j], row[j+1], next[j]) + 1
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			next[j+1] = d
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
