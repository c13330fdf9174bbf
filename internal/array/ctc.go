package array

import "math"

// CTC is the loss of sequences without an alignment: of the logarithms of the
// probabilities of each step's letters, by step, sample and letter, and of the targets,
// one row for each sample, with how many steps and letters of each count
// (aten/src/ATen/native/LossCTC.cpp).
type CTC struct {
	LogProbs, Targets *Array
	Steps, Lengths    []float64
	Blank             int
}

// alignment is one sample: the target with a blank around every letter.
type alignment struct {
	logp   func(t, letter int) float64
	steps  int
	states []int // letters
}

func (c *CTC) alignment(sample int) *alignment {
	batch, classes := c.LogProbs.Size[1], c.LogProbs.Size[2]
	s := &alignment{steps: int(c.Steps[sample]), states: []int{c.Blank}}
	s.logp = func(t, letter int) float64 { return c.LogProbs.V[(t*batch+sample)*classes+letter] }
	for i := range int(c.Lengths[sample]) {
		s.states = append(s.states, int(c.Targets.V[sample*c.Targets.Size[1]+i]), c.Blank)
	}
	return s
}

// logAdd is the logarithm of a sum of numbers whose logarithms are given.
func logAdd(v ...float64) float64 {
	most := math.Inf(-1)
	for _, x := range v {
		most = max(most, x)
	}
	if math.IsInf(most, -1) {
		return most
	}
	sum := 0.0
	for _, x := range v {
		sum += math.Exp(x - most)
	}
	return most + math.Log(sum)
}

// skips reports whether a path may go over the blank before a state.
func (s *alignment) skips(k int) bool { return k >= 2 && s.states[k] != s.states[k-2] }

// table is, for each step and state, the logarithm of the probability of all paths
// to it, or from it on.
func (s *alignment) table(backward bool) [][]float64 {
	n := len(s.states)
	out := make([][]float64, s.steps)
	for i := range s.steps {
		t, from := i, i-1
		if backward {
			t, from = s.steps-1-i, s.steps-i
		}
		row := make([]float64, n)
		for k := range n {
			row[k] = math.Inf(-1)
			ends := k <= 1
			if backward {
				ends = k >= n-2
			}
			switch {
			case i == 0 && ends:
				row[k] = s.logp(t, s.states[k])
			case i > 0:
				v := []float64{out[from][k]}
				if !backward {
					if k >= 1 {
						v = append(v, out[from][k-1])
					}
					if s.skips(k) {
						v = append(v, out[from][k-2])
					}
				} else {
					if k+1 < n {
						v = append(v, out[from][k+1])
					}
					if k+2 < n && s.skips(k+2) {
						v = append(v, out[from][k+2])
					}
				}
				row[k] = logAdd(v...) + s.logp(t, s.states[k])
			}
		}
		out[t] = row
	}
	return out
}

// loss is the negative logarithm of the probability of all alignments.
func (s *alignment) loss(forward [][]float64) float64 {
	if s.steps == 0 {
		if len(s.states) == 1 {
			return 0
		}
		return math.Inf(1)
	}
	last, n := forward[s.steps-1], len(s.states)
	if n == 1 {
		return -last[0]
	}
	return -logAdd(last[n-1], last[n-2])
}

// Losses are those of the samples, and the logarithms of the probabilities of the paths
// to each step and state.
func (c *CTC) Losses() (losses, paths []float64, err error) {
	steps, letters := c.LogProbs.Size[0], c.Targets.Size[1]
	width := 2*letters + 1
	losses = make([]float64, c.LogProbs.Size[1])
	paths = make([]float64, len(losses)*steps*width)
	for i := range losses {
		if n, l := c.Steps[i], c.Lengths[i]; int(n) > steps || int(l) > letters || n < 0 || l < 0 {
			return nil, nil, Outside(int(max(n, l)), steps)
		}
		s := c.alignment(i)
		table := s.table(false)
		losses[i] = s.loss(table)
		for t, row := range table {
			copy(paths[(i*steps+t)*width:], row)
		}
	}
	return losses, paths, nil
}

// Grad is the gradient of the logarithms of probabilities, by the losses and their
// gradients; that of a loss that is infinite is 0 with zeroInfinity.
func (c *CTC) Grad(losses, g []float64, zeroInfinity bool) []float64 {
	out := make([]float64, len(c.LogProbs.V))
	batch, classes := c.LogProbs.Size[1], c.LogProbs.Size[2]
	for i := range losses {
		if zeroInfinity && math.IsInf(losses[i], 1) {
			continue
		}
		s := c.alignment(i)
		forward, backward := s.table(false), s.table(true)
		for t := range s.steps {
			sums := make([]float64, classes)
			for l := range sums {
				sums[l] = math.Inf(-1)
			}
			for k, letter := range s.states {
				sums[letter] = logAdd(sums[letter], forward[t][k]+backward[t][k])
			}
			for l := range sums {
				p := s.logp(t, l)
				out[(t*batch+i)*classes+l] = (math.Exp(p) - math.Exp(sums[l]+losses[i]-p)) * g[i]
			}
		}
	}
	return out
}
