package array

import (
	"math"
	"testing"
)

// TestCTC holds the loss against the sum over all alignments of two samples, one of them
// shorter in steps and letters, and the gradient against differences.
func TestCTC(t *testing.T) {
	const steps, batch, classes, blank = 4, 2, 3, 0
	c := &CTC{
		LogProbs: &Array{Size: []int{steps, batch, classes}},
		Targets:  &Array{Size: []int{batch, 2}, V: []float64{1, 1, 2, 0}},
		Steps:    []float64{4, 3}, Lengths: []float64{2, 1}, Blank: blank,
	}
	for i := range steps * batch * classes {
		c.LogProbs.V = append(c.LogProbs.V, -0.2-0.37*float64(i*i%7))
	}
	losses, _, err := c.Losses()
	if err != nil {
		t.Fatal(err)
	}
	for i := range losses {
		if want := allAlignments(c, i); math.Abs(losses[i]-want) > 1e-12 {
			t.Errorf("sample %d: loss %v, not %v", i, losses[i], want)
		}
	}

	g := []float64{0.7, -1.3}
	grad := c.Grad(losses, g, false)
	const h = 1e-6
	sum := func(at int, d float64) float64 { // of the losses, weighted by their gradients, where one logit moves
		moved := *c
		v := append([]float64(nil), c.LogProbs.V...)
		v[at] += d
		moved.LogProbs = &Array{Size: c.LogProbs.Size, V: v}
		losses, _, err := moved.Losses()
		if err != nil {
			t.Fatal(err)
		}
		return g[0]*losses[0] + g[1]*losses[1]
	}
	for at, got := range grad {
		// PyTorch's gradient is that by what the logarithms were made of by log_softmax, but
		// for the probability itself, which comes from there.
		step, sample := at/(batch*classes), at/classes%batch
		p := 0.0
		if step < int(c.Steps[sample]) {
			p = math.Exp(c.LogProbs.V[at]) * g[sample]
		}
		if want := (sum(at, h)-sum(at, -h))/(2*h) + p; math.Abs(got-want) > 1e-7 {
			t.Errorf("gradient %d is %v, not %v", at, got, want)
		}
	}
}

// allAlignments is the loss of a sample by trying all sequences of letters.
func allAlignments(c *CTC, sample int) float64 {
	classes, steps := c.LogProbs.Size[2], int(c.Steps[sample])
	want := c.Targets.V[sample*c.Targets.Size[1]:][:int(c.Lengths[sample])]
	total := 0.0
	size := make([]int, steps)
	for i := range size {
		size[i] = classes
	}
	walk(size, func(_ int, path []int) {
		var said []float64
		p := 1.0
		for t, letter := range path {
			p *= math.Exp(c.LogProbs.V[(t*c.LogProbs.Size[1]+sample)*classes+letter])
			if letter != c.Blank && (t == 0 || path[t-1] != letter) {
				said = append(said, float64(letter))
			}
		}
		if len(said) == len(want) {
			for i := range said {
				if said[i] != want[i] {
					return
				}
			}
			total += p
		}
	})
	return -math.Log(total)
}

// TestCTCImpossible checks a target that is longer than there are steps for.
func TestCTCImpossible(t *testing.T) {
	c := &CTC{
		LogProbs: &Array{Size: []int{2, 1, 2}, V: []float64{-1, -1, -1, -1}}, Targets: &Array{Size: []int{1, 2}, V: []float64{1, 1}},
		Steps: []float64{2}, Lengths: []float64{2},
	}
	losses, _, err := c.Losses()
	if err != nil || !math.IsInf(losses[0], 1) {
		t.Fatalf("loss %v, error %v", losses, err)
	}
	for _, v := range c.Grad(losses, []float64{1}, true) {
		if v != 0 {
			t.Errorf("the gradient is %v with zero_infinity", v)
		}
	}
	c.Lengths[0] = 3
	if _, _, err := c.Losses(); err == nil {
		t.Error("a target that is longer than the row is not refused")
	}
}
