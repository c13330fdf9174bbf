package data

// byteTokens is how many tokens the bytes alone are.
const byteTokens = 256

// Bytes are the bytes of a text as tokens.
func Bytes(text []byte) []int64 {
	out := make([]int64, len(text))
	for i, b := range text {
		out[i] = int64(b)
	}
	return out
}

// learned bounds the text from which pairs are learned, and merges how many.
const (
	learned   = 1 << 16
	maxMerges = 256
)

// Pairs encodes a text with a byte-pair encoding of at most vocab tokens: again
// and again, the most frequent pair of neighbours, the smallest of equals,
// becomes a token (Gage, A new algorithm for data compression, 1994). The pairs
// are learned from the beginning of the text.
func Pairs(text []byte, vocab int64) []int64 {
	tokens := Bytes(text)
	for next := int64(byteTokens); next < vocab && next < byteTokens+maxMerges; next++ {
		counts := map[[2]int64]int{}
		sample := tokens[:min(len(tokens), learned)]
		for i := 1; i < len(sample); i++ {
			counts[[2]int64{sample[i-1], sample[i]}]++
		}
		var best [2]int64
		most := 1
		for p, n := range counts {
			if n > most || n == most && n > 1 && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best, most = p, n
			}
		}
		if most < 2 {
			break
		}
		out := tokens[:0]
		for i := 0; i < len(tokens); i++ {
			if i+1 < len(tokens) && tokens[i] == best[0] && tokens[i+1] == best[1] {
				out = append(out, next)
				i++
				continue
			}
			out = append(out, tokens[i])
		}
		tokens = out
	}
	return tokens
}
