package array

import (
	"math"
	"slices"
	"testing"
)

// some are n numbers around 0.
func some(n, seed int) []float64 {
	return Each(n, func(i int) float64 { return math.Sin(float64(i*7+seed*13) + 0.3) })
}

// hold holds the gradients of inputs against differences of y, whose own gradient is g.
func hold(t *testing.T, name string, inputs, grads [][]float64, g []float64, y func() []float64) {
	t.Helper()
	const h = 1e-6
	sum := func() float64 {
		out := y()
		if len(out) != len(g) {
			t.Fatalf("%s: %d results, not %d", name, len(out), len(g))
		}
		total := 0.0
		for i, v := range out {
			total += v * g[i]
		}
		return total
	}
	for k, v := range inputs {
		if len(grads[k]) != len(v) {
			t.Fatalf("%s: %d gradients of %d numbers of input %d", name, len(grads[k]), len(v), k)
		}
		for i, was := range v {
			v[i] = was + h
			up := sum()
			v[i] = was - h
			down := sum()
			v[i] = was
			if want := (up - down) / (2 * h); math.Abs(grads[k][i]-want) > 1e-7*max(1, math.Abs(want)) {
				t.Errorf("%s: gradient %d of input %d is %v, not %v", name, i, k, grads[k][i], want)
			}
		}
	}
}

// TestAttentionGradient is one of two heads of queries that share keys, with a mask and
// dropout.
func TestAttentionGradient(t *testing.T) {
	for _, causal := range []bool{false, true} {
		a := &Attention{
			Q: &Array{[]int{1, 2, 3, 2}, some(12, 1)}, K: &Array{[]int{1, 1, 3, 2}, some(6, 2)}, V: &Array{[]int{1, 1, 3, 4}, some(12, 3)},
			Mask: some(18, 4), Causal: causal, Scale: 0.7, Dropped: func(i int) float64 { return float64(i%3) / 2 },
		}
		g := some(24, 5)
		gq, gk, gv, gm := a.Backward(g)
		hold(t, "attention", [][]float64{a.Q.V, a.K.V, a.V.V, a.Mask}, [][]float64{gq, gk, gv, gm}, g, a.Forward)
	}
	if got := SafeSoftmax([]float64{math.Inf(-1), math.Inf(-1)}); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("the softmax of what is masked whole is %v", got)
	}
}

// TestNormalizationGradient normalizes over the last dimension, channels and groups.
func TestNormalizationGradient(t *testing.T) {
	size := []int{2, 4, 3}
	for name, n := range map[string]*Normalization{"rows": OverLast(12, 24), "channels": OverChannels(size), "groups": OverGroups(size, 2)} {
		x, w, b, g := some(24, 1), some(n.Weights, 2), some(n.Weights, 3), some(24, 4)
		y := func() []float64 {
			mean, variance, _ := n.Moments(x)
			return n.Forward(x, mean, Rstd(variance, 1e-3), w, b)
		}
		mean, variance, count := n.Moments(x)
		if count*float64(n.Groups) != 24 {
			t.Errorf("%s: %v elements in each of %d groups", name, count, n.Groups)
		}
		gx, gw, gb := n.Backward(x, g, mean, Rstd(variance, 1e-3), w, true)
		hold(t, name, [][]float64{x, w, b}, [][]float64{gx, gw, gb}, g, y)
		gx, _, _ = n.Backward(x, g, mean, Rstd(variance, 1e-3), w, false)
		hold(t, name+" by statistics that are given", [][]float64{x}, [][]float64{gx}, g, func() []float64 { return n.Forward(x, mean, Rstd(variance, 1e-3), w, b) })
	}
}

// TestRecurrentGradient runs two layers in both directions, with a mask between them.
func TestRecurrentGradient(t *testing.T) {
	for _, c := range []struct {
		name string
		Recurrent
	}{
		{"LSTM", Recurrent{Cell: LSTM, Hidden: 2, Out: 2, Bias: true}},
		{"LSTM with a projection", Recurrent{Cell: LSTM, Hidden: 3, Out: 2, Projected: true, BatchFirst: true}},
		{"GRU", Recurrent{Cell: GRU, Hidden: 2, Out: 2, Bias: true}},
		{"tanh", Recurrent{Cell: PlainTanh, Hidden: 2, Out: 2, BatchFirst: true}},
	} {
		const steps, batch, width = 3, 2, 2
		l := c.Recurrent
		l.Layers, l.Directions = 2, 2
		l.Mask = func(_, _, _, i int) float64 { return float64(i%3) / 2 }
		var weights [][]float64
		for k := range 4 {
			in := width
			if k > 1 {
				in = 2 * l.Out
			}
			gates := l.Cell.Gates * l.Hidden
			weights = append(weights, some(gates*in, k), some(gates*l.Out, k+10))
			if l.Bias {
				weights = append(weights, some(gates, k+20), some(gates, k+30))
			}
			if l.Projected {
				weights = append(weights, some(l.Hidden*l.Out, k+40))
			}
		}
		x := &Array{[]int{steps, batch, width}, some(steps*batch*width, 50)}
		if l.BatchFirst {
			x.Size[0], x.Size[1] = batch, steps
		}
		hx, gh := some(4*batch*l.Out, 51), some(4*batch*l.Out, 52)
		var cx, gc []float64
		if l.Cell == LSTM {
			cx, gc = some(4*batch*l.Hidden, 53), some(4*batch*l.Hidden, 54)
		}
		gy := some(steps*batch*2*l.Out, 55)
		y := func() []float64 {
			r := Recur(&l, x.V, x.Size, hx, cx, weights)
			out := slices.Concat(r.Y, r.H)
			if cx != nil {
				out = append(out, r.C...)
			}
			return out
		}
		gx, gh0, gc0, gw := Recur(&l, x.V, x.Size, hx, cx, weights).Backward(gy, gh, gc, weights)
		hold(t, c.name, append([][]float64{x.V, hx, cx}, weights...), append([][]float64{gx, gh0, gc0}, gw...), slices.Concat(gy, gh, gc), y)
	}
}

// TestTrilinearGradient is that of all three operands.
func TestTrilinearGradient(t *testing.T) {
	x1, w, x2 := &Array{[]int{2, 3}, some(6, 1)}, &Array{[]int{2, 3, 2}, some(12, 2)}, &Array{[]int{2, 2}, some(4, 3)}
	g := some(4, 4)
	g1, gw, g2 := TrilinearGrad(x1, w, x2, g)
	hold(t, "trilinear", [][]float64{x1.V, w.V, x2.V}, [][]float64{g1, gw, g2}, g, func() []float64 { return Trilinear(x1, w, x2) })
}

// TestRecurrentSingle holds layers in float32 against those in float64.
func TestRecurrentSingle(t *testing.T) {
	const steps, batch, width, hidden = 5, 3, 4, 6
	for _, cell := range []*Cell{LSTM, GRU, PlainTanh, PlainRelu} {
		l := &Recurrent{Cell: cell, Hidden: hidden, Out: hidden, Layers: 2, Directions: 2, Bias: true, BatchFirst: true}
		var weights [][]float64
		for k := range 4 {
			in := width
			if k > 1 {
				in = 2 * hidden
			}
			g := cell.Gates * hidden
			weights = append(weights, some(g*in, k), some(g*hidden, k+10), some(g, k+20), some(g, k+30))
		}
		x, size := some(steps*batch*width, 50), []int{batch, steps, width}
		hx, gh, gy := some(4*batch*hidden, 51), some(4*batch*hidden, 52), some(steps*batch*2*hidden, 53)
		var cx, gc []float64
		if cell == LSTM {
			cx, gc = some(4*batch*hidden, 54), some(4*batch*hidden, 55)
		}
		for _, w := range append(weights, x, hx, gh, gy, cx, gc) { // numbers that both types have
			for i := range w {
				w[i] = float64(float32(w[i] / 2))
			}
		}
		double := Recur(l, x, size, hx, cx, weights)
		var narrow [][]float32
		for _, w := range weights {
			narrow = append(narrow, singles(w))
		}
		single := Recur(l, singles(x), size, singles(hx), singles(cx), narrow)
		near := func(what string, got []float32, want []float64) {
			if len(got) != len(want) {
				t.Fatalf("%s: %d numbers, not %d", what, len(got), len(want))
			}
			for i, w := range want {
				if math.Abs(float64(got[i])-w) > 2e-5*max(1, math.Abs(w)) {
					t.Fatalf("%d gates, %s: number %d is %v, not %v", cell.Gates, what, i, got[i], w)
				}
			}
		}
		near("results", single.Y, double.Y)
		near("hidden states", single.H, double.H)
		near("cells", single.C, double.C)
		gx, gh0, gc0, gw := double.Backward(gy, gh, gc, weights)
		sx, sh0, sc0, sw := single.Backward(singles(gy), singles(gh), singles(gc), narrow)
		near("gradients of the input", sx, gx)
		near("gradients of states", sh0, gh0)
		near("gradients of cells", sc0, gc0)
		for i := range gw {
			near("gradients of weights", sw[i], gw[i])
		}
	}
}

// singles are numbers in float32; of none nil.
func singles(v []float64) []float32 {
	var out []float32
	for _, x := range v {
		out = append(out, float32(x))
	}
	return out
}
