// Package lengths holds how long the samples of a data set are, and which lengths the
// batches have that a sampler and a collator make of them.
package lengths

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// MaxSamples is how many samples a file may stand for.
const MaxSamples = 1 << 22

// Samples are the lengths of a data set's samples, in its order.
type Samples []int32

// A ParseError says which line of a file is wrong, and why.
type ParseError struct {
	Line int // from 1
	Msg  string
}

func (e *ParseError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// Parse reads one length a line, or a histogram: a length and how many samples have it,
// separated by spaces, tabs or a comma. Empty lines and what follows # are left out. The
// error, if any, is a *ParseError.
func Parse(text []byte) (Samples, error) {
	var out Samples
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	n := 0
	for lines.Scan() {
		n++
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' || r == '\r' })
		if len(fields) == 0 {
			continue
		}
		if len(fields) > 2 {
			return nil, &ParseError{n, fmt.Sprintf("has %d numbers; allowed are a length, or a length and how many samples have it", len(fields))}
		}
		length, err := strconv.ParseInt(fields[0], 10, 32)
		if err != nil || length < 1 {
			return nil, &ParseError{n, fmt.Sprintf("%q is no length; allowed are whole numbers from 1", fields[0])}
		}
		count := int64(1)
		if len(fields) == 2 {
			if count, err = strconv.ParseInt(fields[1], 10, 64); err != nil || count < 0 {
				return nil, &ParseError{n, fmt.Sprintf("%q is no number of samples; allowed are whole numbers from 0", fields[1])}
			}
		}
		if count > MaxSamples-int64(len(out)) {
			return nil, &ParseError{n, fmt.Sprintf("more than %d samples; a histogram with smaller numbers has the same shape", MaxSamples)}
		}
		out = append(out, slices.Repeat([]int32{int32(length)}, int(count))...)
	}
	if len(out) == 0 {
		return nil, &ParseError{max(n, 1), "there are no lengths"}
	}
	return out, nil
}

// Longest is the greatest length.
func (s Samples) Longest() int64 { return int64(slices.Max(s)) }

// Collator says how long the batch is that is made of samples: as the longest of them, of
// which no more than Max is taken (0: all), up to a multiple of Multiple.
type Collator struct{ Max, Multiple int64 }

// Pad is the length of a batch whose longest sample has the given length.
func (c Collator) Pad(longest int64) int64 {
	if c.Max > 0 {
		longest = min(longest, c.Max)
	}
	if m := c.Multiple; m > 1 {
		longest = (longest + m - 1) / m * m
	}
	return longest
}

// Sampler draws batches of samples, epoch after epoch, each in an order of its own. An
// epoch's last batch is left out where there are too few samples for it.
type Sampler struct {
	Batch   int  // samples in a batch
	Grouped bool // samples of like lengths come together, as in transformers' LengthGroupedSampler
	Step    int  // batches of an optimizer step, which are grouped together

	Collator
	samples Samples
	order   []int32 // lengths, in the order of this epoch
	next    int
	random  *rand.Rand
}

// NewSampler draws from samples; the seed decides the order.
func NewSampler(s Samples, seed uint64) *Sampler {
	return &Sampler{Batch: 1, Step: 1, samples: s, random: rand.New(rand.NewPCG(seed, 0))}
}

// Next is the length of the next batch.
func (s *Sampler) Next() int64 {
	n := min(s.Batch, len(s.samples))
	if s.order == nil || s.next+n > len(s.order) {
		s.shuffle()
	}
	longest := slices.Max(s.order[s.next : s.next+n])
	s.next += n
	return s.Pad(int64(longest))
}

// mostGrouped is how many batches are grouped at most.
const mostGrouped = 50

// shuffle begins an epoch.
func (s *Sampler) shuffle() {
	s.order, s.next = append(s.order[:0], s.samples...), 0
	s.random.Shuffle(len(s.order), func(i, k int) { s.order[i], s.order[k] = s.order[k], s.order[i] })
	if !s.Grouped {
		return
	}
	batch := s.Batch * s.Step
	group := max(1, min(len(s.order)/(batch*4), mostGrouped)) * batch
	longest := 0 // the group with the longest sample
	for i := 0; i < len(s.order); i += group {
		g := s.order[i:min(i+group, len(s.order))]
		slices.SortFunc(g, func(a, b int32) int { return int(b) - int(a) })
		if g[0] > s.order[longest] {
			longest = i
		}
	}
	s.order[0], s.order[longest] = s.order[longest], s.order[0] // so that it comes first
}
