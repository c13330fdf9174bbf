package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// stream is a sequence of random numbers on the host, the same on every device.
type stream struct {
	seed, block uint64
	words       [4]uint32
	left        int
}

func newStream(seed uint64) *stream { return &stream{seed: seed} }

func (s *stream) word() uint32 {
	if s.left == 0 {
		s.words, s.left = kernel.Philox(s.seed, s.block), 4
		s.block++
	}
	s.left--
	return s.words[3-s.left]
}

// uniform is a number in (0, 1).
func (s *stream) uniform() float64 { return (float64(s.word()) + 0.5) / (1 << 32) }

// normal is a number of the standard normal distribution (Box and Muller).
func (s *stream) normal() float64 {
	return math.Sqrt(-2*math.Log(s.uniform())) * math.Cos(2*math.Pi*s.uniform())
}

// below is an integer in [0, n).
func (s *stream) below(n int64) int64 { return int64(s.uniform() * float64(n)) }
