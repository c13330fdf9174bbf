package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

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

// pair are two neighbours that become a token.
type pair [2]int64

// Pairs encodes a text with a byte-pair encoding of at most vocab tokens: again
// and again, the most frequent pair of neighbours, the smallest of equals,
// becomes a token (Gage, A new algorithm for data compression, 1994). The pairs
// are learned from the beginning of the text, and encode others, too.
func Pairs(text []byte, vocab int64) ([]int64, []pair) {
	tokens := Bytes(text)
	var pairs []pair
	for next := int64(byteTokens); next < vocab && next < byteTokens+maxMerges; next++ {
		counts := map[pair]int{}
		sample := tokens[:min(len(tokens), learned)]
		for i := 1; i < len(sample); i++ {
			counts[pair{sample[i-1], sample[i]}]++
		}
		var best pair
		most := 1
		for p, n := range counts {
			if n > most || n == most && n > 1 && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best, most = p, n
			}
		}
		if most < 2 {
			break
		}
		tokens, pairs = merged(tokens, best, next), append(pairs, best)
	}
	return tokens, pairs
}

// merged makes a token of each pair, from left to right, in the place of tokens.
func merged(tokens []int64, p pair, token int64) []int64 {
	out := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		if i+1 < len(tokens) && tokens[i] == p[0] && tokens[i+1] == p[1] {
			out = append(out, token)
			i++
			continue
		}
		out = append(out, tokens[i])
	}
	return out
}

// vocabulary are the texts of a set as tokens.
type vocabulary struct {
	pairs   bool
	learned []pair // of the first text
	known   bool
	texts   map[string]*encoded // by the names of their files
}

// encoded are the tokens of texts that follow one another.
type encoded struct {
	name   string
	tokens []int64
}

// encode are the tokens of the texts of files for an input, each of which the model knows.
func (v *vocabulary) encode(s *Set, in program.Input, files []*File) (*encoded, error) {
	bound := s.o.Bounds[in.Name]
	var names []string
	var text []byte
	for _, f := range files {
		if f.Text == nil {
			return nil, fmt.Errorf("%s is no text, %s is one", f.Name, files[0].Name)
		}
		names, text = append(names, f.Name), append(text, f.Text...)
	}
	name := strings.Join(names, ", ")
	if in.DType.IsFloating() || bound == 0 {
		return nil, fmt.Errorf("%s is a text; the input takes no tokens", name)
	}
	if e := v.texts[name]; e != nil {
		return e, nil
	}
	vocab := bound
	for _, b := range s.o.Bounds {
		vocab = min(vocab, b)
	}
	e := &encoded{name: name}
	switch {
	case !v.pairs:
		e.tokens = Bytes(text)
	case !v.known:
		e.tokens, v.learned = Pairs(text, vocab)
		v.known = true
	default:
		e.tokens = Bytes(text)
		for i, p := range v.learned {
			e.tokens = merged(e.tokens, p, byteTokens+int64(i))
		}
	}
	if i := slices.IndexFunc(e.tokens, func(t int64) bool { return t >= vocab }); i >= 0 {
		return nil, fmt.Errorf("%s: byte %d of the text is token %d; the model knows %d", name, i, e.tokens[i], vocab)
	}
	v.texts[name] = e
	return e, nil
}
