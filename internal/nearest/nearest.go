// Package nearest finds the name that a misspelt one was most likely meant to
// be, for "did you mean" in error messages.
package nearest

import "strings"

// To returns the candidate that s is most likely a slip of: the one at the
// smallest edit distance, if that is at most a third of its length. Case does
// not count. Of equals the first wins; "" means none is near.
func To(s string, candidates []string) string {
	best, bestDistance := "", 0
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d <= len(c)/3 && (best == "" || d < bestDistance) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is Levenshtein's, on bytes.
func distance(a, b string) int {
	if len(a) > 64 { // no name is as long; bounds the work on hostile input
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
