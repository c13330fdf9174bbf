package array

import (
	"math"
	"slices"
	"testing"
)

// TestSelfAttention holds two heads, of which some keys are hidden, against an attention of
// what is projected before and after it.
func TestSelfAttention(t *testing.T) {
	const batch, heads, length, width = 2, 2, 3, 4
	const head = width / heads
	x := &Array{[]int{batch, length, width}, some(batch*length*width, 1)}
	p := Projections{some(3*width*width, 2), some(3*width, 3), some(width*width, 4), some(width, 5)}
	hidden := func(b, h, t, s int) bool { return s > t || b == 1 && h == 1 && s == 0 }

	// at is the place of head h in row t of the projections, of parts of which each is width long.
	at := func(parts, part, b, h, t, e int) int { return ((b*length+t)*parts+part)*width + h*head + e }
	each := func(f func(i, b, h, t, e int)) {
		for i := range batch * heads * length * head {
			f(i, i/(heads*length*head), i/(length*head)%heads, i/head%length, i%head)
		}
	}
	qkv := Affine(x.V, p.In, p.InBias, width)
	part := func(n int) *Array {
		v := make([]float64, len(x.V))
		each(func(i, b, h, t, e int) { v[i] = qkv[at(3, n, b, h, t, e)] })
		return &Array{[]int{batch, heads, length, head}, v}
	}
	mask := Each(batch*heads*length*length, func(i int) float64 {
		if hidden(i/(heads*length*length), i/(length*length)%heads, i/length%length, i%length) {
			return math.Inf(-1)
		}
		return 0
	})
	a := &Attention{Q: part(0), K: part(1), V: part(2), Mask: mask, Scale: 1 / math.Sqrt(head)}
	context, forward := make([]float64, len(x.V)), a.Forward()
	each(func(i, b, h, t, e int) { context[at(1, 0, b, h, t, e)] = forward[i] })
	want := Affine(context, p.Out, p.OutBias, width)

	y, weights := SelfAttention(x, heads, p, hidden)
	if !slices.EqualFunc(y, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("%v, not %v", y, want)
	}
	if len(weights) != len(mask) {
		t.Fatalf("%d weights, not %d", len(weights), len(mask))
	}
	for row := range len(weights) / length {
		sum, all := 0.0, true
		for s := range length {
			i := row*length + s
			if sum += weights[i]; (weights[i] == 0) != (mask[i] != 0) {
				t.Errorf("weight %d is %v", i, weights[i])
			}
			all = all && mask[i] != 0
		}
		if want := Truth(!all); math.Abs(sum-want) > 1e-12 {
			t.Errorf("the weights of row %d are %v in all, not %v", row, sum, want)
		}
	}
}
