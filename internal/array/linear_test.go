package array

import (
	"math"
	"slices"
	"testing"
)

// times multiplies by the matrix of a linear operator.
func times(t *testing.T, l Linear, x, y []int, v []float64, index ...[]float64) []float64 {
	out := make([]float64, Numel(y))
	if err := l.Run(&Matrix{In: x, Out: y, Index: index}, func(to, from int, weight float64) { out[to] += weight * v[from] }); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestResampled checks resizing against what torch.nn.functional.interpolate gives.
func TestResampled(t *testing.T) {
	x := []float64{0, 1, 2, 3}
	half := 2.0
	for _, c := range []struct {
		name  string
		taps  Taps
		scale *float64
		align bool
		want  []float64
	}{
		{"nearest", NearestTaps(0), nil, false, []float64{0, 0, 1, 2, 2, 3}},
		{"nearest-exact", NearestTaps(0.5), nil, false, []float64{0, 1, 1, 2, 3, 3}},
		{"linear", LinearTaps, nil, false, []float64{0, 0.5, 7.0 / 6, 11.0 / 6, 2.5, 3}},
		{"linear with aligned corners", LinearTaps, nil, true, []float64{0, 0.6, 1.2, 1.8, 2.4, 3}},
		{"linear with a scale", LinearTaps, &half, false, []float64{0, 0.25, 0.75, 1.25, 1.75, 2.25}},
		{"average", AverageTaps, nil, false, []float64{0, 0.5, 1, 2, 2.5, 3}},
	} {
		got := times(t, Resampled(1, c.taps, c.scale, c.align), []int{1, 1, 4}, []int{1, 1, 6}, x)
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-12 {
				t.Errorf("%s: %v, not %v", c.name, got, c.want)
				break
			}
		}
	}
	// Cubic weights sum to 1 and keep what is linear, away from borders.
	for _, at := range []float64{0, 0.25, 0.9} {
		w, slope := cubic(at)
		sum, place, change := 0.0, 0.0, 0.0
		for k := range w {
			sum, place, change = sum+w[k], place+w[k]*float64(k-1), change+slope[k]
		}
		if math.Abs(sum-1) > 1e-12 || math.Abs(change) > 1e-12 || at == 0 && place != 0 {
			t.Errorf("cubic weights at %v sum to %v, their slopes to %v, their place is %v", at, sum, change, place)
		}
	}
}

// TestPool checks windows that reach beyond the end, with and without what is padded.
func TestPool(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5}
	p := Pool{Kernel: []int64{3}, Stride: []int64{2}, Padding: []int64{1}}
	for _, c := range []struct {
		exclude bool
		divisor int64
		want    []float64
	}{{false, 0, []float64{1, 3, 3}}, {true, 0, []float64{1.5, 3, 4.5}}, {false, 2, []float64{1.5, 4.5, 4.5}}} {
		p.ExcludePadding, p.Divisor = c.exclude, c.divisor
		if got := times(t, p.Linear(1), []int{1, 5}, []int{1, 3}, x); !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
			t.Errorf("without padding %v, divisor %d: %v, not %v", c.exclude, c.divisor, got, c.want)
		}
	}
}

// TestOutsideOfMatrix checks that entries that do not exist are an error.
func TestOutsideOfMatrix(t *testing.T) {
	l := Linear{Entries: func(m *Matrix) { m.Emit(0, 5, 1) }}
	if err := l.Run(&Matrix{In: []int{5}, Out: []int{1}}, func(int, int, float64) { t.Error("an entry outside of the input counts") }); err == nil {
		t.Error("no error")
	}
}

// TestMoves checks what moves, repeats and mixes elements.
func TestMoves(t *testing.T) {
	two := &Windows{Kernel: []int64{2}, Stride: []int64{1}, Padding: []int64{0}, Dilation: []int64{1}}
	for _, c := range []struct {
		name  string
		l     Linear
		in    []int
		v     []float64
		out   []int
		index []float64
		want  []float64
	}{
		{"flip", Flip([]int64{-1}), []int{2, 2}, []float64{1, 2, 3, 4}, []int{2, 2}, nil, []float64{2, 1, 4, 3}},
		{"roll", Roll([]int64{1}, []int64{0}), []int{3}, []float64{1, 2, 3}, []int{3}, nil, []float64{3, 1, 2}},
		{"roll, flat", Roll([]int64{-1}, nil), []int{2, 2}, []float64{1, 2, 3, 4}, []int{2, 2}, nil, []float64{2, 3, 4, 1}},
		{"repeat", Repeat, []int{2}, []float64{1, 2}, []int{2, 4}, nil, []float64{1, 2, 1, 2, 1, 2, 1, 2}},
		{"pixel_shuffle", PixelShuffle(2), []int{1, 4, 1, 1}, []float64{1, 2, 3, 4}, []int{1, 1, 2, 2}, nil, []float64{1, 2, 3, 4}},
		{"pixel_unshuffle", PixelUnshuffle(2), []int{1, 1, 2, 2}, []float64{1, 2, 3, 4}, []int{1, 4, 1, 1}, nil, []float64{1, 2, 3, 4}},
		{"channel_shuffle", ChannelShuffle(2), []int{1, 4, 1}, []float64{1, 2, 3, 4}, []int{1, 4, 1}, nil, []float64{1, 3, 2, 4}},
		{"reflection", Bordered([]int64{2, 1}, Reflected), []int{1, 3}, []float64{1, 2, 3}, []int{1, 6}, nil, []float64{3, 2, 1, 2, 3, 2}},
		{"replication", Bordered([]int64{2, 1}, Nearest), []int{1, 3}, []float64{1, 2, 3}, []int{1, 6}, nil, []float64{1, 1, 1, 2, 3, 3}},
		{"unfold", two.Unfold(), []int{1, 2, 3}, []float64{1, 2, 3, 4, 5, 6}, []int{1, 4, 2}, nil, []float64{1, 2, 2, 3, 4, 5, 5, 6}},
		{"fold", two.Fold(), []int{1, 4, 2}, []float64{1, 1, 1, 1, 1, 1, 1, 1}, []int{1, 2, 3}, nil, []float64{1, 2, 1, 1, 2, 1}},
		{"index_select", Select(1), []int{2, 2}, []float64{1, 2, 3, 4}, []int{2, 3}, []float64{1, 0, -1}, []float64{2, 1, 2, 4, 3, 4}},
		{"gather", Gather(0), []int{2, 2}, []float64{1, 2, 3, 4}, []int{1, 2}, []float64{1, 0}, []float64{3, 2}},
		{"a mask", Masked, []int{3, 1}, []float64{1, 2, 3}, []int{2, 1}, []float64{1, 0, 1}, []float64{1, 3}},
		{"affine_grid of the identity", AffineGrid(true), []int{1, 2, 3}, []float64{1, 0, 0, 0, 1, 0}, []int{1, 2, 2, 2}, nil, []float64{-1, -1, 1, -1, -1, 1, 1, 1}},
	} {
		if got := times(t, c.l, c.in, c.out, c.v, c.index); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}
