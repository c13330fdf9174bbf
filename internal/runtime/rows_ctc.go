package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
)

// alignment is one sample of a ctc_loss: the logarithms of the probabilities of each
// step's letters, and the target with a blank around every letter
// (aten/src/ATen/native/LossCTC.cpp).
type alignment struct {
	logp   func(t, letter int) float64
	steps  int
	states []int // letters
}

func newAlignment(x *array, sample int, targets *array, steps, length, blank int) *alignment {
	batch, classes := x.size[1], x.size[2]
	s := &alignment{steps: steps, states: []int{blank}}
	s.logp = func(t, letter int) float64 { return x.v[(t*batch+sample)*classes+letter] }
	for i := range length {
		s.states = append(s.states, int(targets.v[sample*targets.size[1]+i]), blank)
	}
	return s
}

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

// ctcRows hold the loss of sequences without an alignment.
var ctcRows = map[*op.Op]row{op.CTCNative: asideRow(func(a *aside, c *op.Call) {
	x, targets, steps, lengths := a.get(c.In[0]), a.get(c.In[1]), a.get(c.In[2]).v, a.get(c.In[3]).v
	losses, paths := make([]float64, x.size[1]), make([]float64, c.Out[1].Numel())
	width := 2*targets.size[1] + 1
	for i := range losses {
		if int(steps[i]) > x.size[0] || int(lengths[i]) > targets.size[1] || steps[i] < 0 || lengths[i] < 0 {
			a.fail(outside(int(max(steps[i], lengths[i])), x.size[0]))
			return
		}
		s := newAlignment(x, i, targets, int(steps[i]), int(lengths[i]), int(c.Args.(*op.CTCArgs).Blank))
		table := s.table(false)
		losses[i] = s.loss(table)
		for t, row := range table {
			copy(paths[(i*x.size[0]+t)*width:], row)
		}
	}
	a.put(c.Out[0], losses)
	a.put(c.Out[1], paths)
	a.x.lengths[engine.BlockOf(c.Out[1])] = [2][]float64{steps, lengths}
}, func(a *aside, b *op.Back) {
	r := wanted(b, 0)
	if r == nil {
		return
	}
	args := b.Args.(*op.CTCArgs)
	x, targets, losses, g := a.get(b.SavedIn[0]), a.get(b.SavedIn[1]), a.get(b.SavedOut[0]).v, a.get(b.Grads[0]).v
	of := a.x.lengths[engine.BlockOf(b.SavedOut[1])]
	steps, lengths := of[0], of[1]
	out := make([]float64, len(x.v))
	batch, classes := x.size[1], x.size[2]
	for i := range losses {
		if args.ZeroInfinity && math.IsInf(losses[i], 1) {
			continue
		}
		s := newAlignment(x, i, targets, int(steps[i]), int(lengths[i]), int(args.Blank))
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
	a.put(r, out)
})}
