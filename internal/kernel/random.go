package kernel

import "math"

// Uniform is a number in [0, 1) with 24 bits, drawn for place i of the stream
// that a seed names: word i%4 of block i/4 of Philox4x32-10 with the seed as key
// (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
func Uniform(seed uint64, i int64) float32 {
	w := Philox(seed, uint64(i)/4)
	return float32(w[uint64(i)%4]>>8) * (1.0 / (1 << 24))
}

// Philox is block n of the stream of a seed.
func Philox(seed, n uint64) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57
		w0, w1 = 0x9E3779B9, 0xBB67AE85
	)
	c := [4]uint32{uint32(n), uint32(n >> 32), 0, 0}
	k0, k1 := uint32(seed), uint32(seed>>32)
	for range 10 {
		p0, p1 := uint64(m0)*uint64(c[0]), uint64(m1)*uint64(c[2])
		c = [4]uint32{uint32(p1>>32) ^ c[1] ^ k0, uint32(p1), uint32(p0>>32) ^ c[3] ^ k1, uint32(p0)}
		k0 += w0
		k1 += w1
	}
	return c
}

// Stream is a sequence of random numbers on the host, the same on every device.
type Stream struct {
	seed, block uint64
	words       [4]uint32
	left        int
}

// NewStream is the stream of a seed.
func NewStream(seed uint64) *Stream { return &Stream{seed: seed} }

func (s *Stream) word() uint32 {
	if s.left == 0 {
		s.words, s.left = Philox(s.seed, s.block), 4
		s.block++
	}
	s.left--
	return s.words[3-s.left]
}

// Uniform is a number in (0, 1).
func (s *Stream) Uniform() float64 { return (float64(s.word()) + 0.5) / (1 << 32) }

// Normal is a number of the standard normal distribution (Box and Muller).
func (s *Stream) Normal() float64 {
	return math.Sqrt(-2*math.Log(s.Uniform())) * math.Cos(2*math.Pi*s.Uniform())
}

// Below is an integer in [0, n).
func (s *Stream) Below(n int64) int64 { return int64(s.Uniform() * float64(n)) }
