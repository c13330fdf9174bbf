package cpu

import (
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// walk is a way over the elements of some operands of one size: dimensions that
// lie one within the other in all of them are one, and the one in which the
// first operand is densest is innermost.
type walk struct {
	total  int
	size   []int
	stride [][]int // by dimension, then operand
}

// newWalk plans a way over operands with these strides; of one that is absent
// there are none.
func newWalk(size tensor.Dims, strides ...tensor.Dims) *walk {
	w := &walk{total: int(size.Numel())}
	var dims []int
	for d := range size.Len() {
		if size.At(d) != 1 {
			dims = append(dims, d)
		}
	}
	at := func(operand, d int) int {
		if s := strides[operand]; s.Len() > 0 {
			return int(s.At(d))
		}
		return 0
	}
	slices.SortStableFunc(dims, func(a, b int) int { // from the outermost
		for o := range strides {
			if sa, sb := at(o, a), at(o, b); sa != 0 && sb != 0 && sa != sb {
				return sb - sa
			}
		}
		return 0
	})
	for _, d := range dims {
		step := make([]int, len(strides))
		nested := len(w.size) > 0
		for o := range step {
			step[o] = at(o, d)
			nested = nested && w.stride[len(w.size)-1][o] == step[o]*int(size.At(d))
		}
		if last := len(w.size) - 1; nested {
			w.size[last] *= int(size.At(d))
			w.stride[last] = step
			continue
		}
		w.size, w.stride = append(w.size, int(size.At(d))), append(w.stride, step)
	}
	if len(w.size) == 0 {
		w.size, w.stride = []int{1}, [][]int{make([]int, len(strides))}
	}
	return w
}

// over is a way over all operands of a call.
func (l *launch) over() *walk {
	var strides []tensor.Dims
	for i := range l.call.T {
		strides = append(strides, l.call.T[i].Stride)
	}
	return newWalk(l.call.T[0].Size, strides...)
}

// overPlaces is the same with one more, the place of the element in row-major
// order.
func (l *launch) overPlaces() *walk {
	size := l.call.T[0].Size
	var strides []tensor.Dims
	for i := range l.call.T {
		strides = append(strides, l.call.T[i].Stride)
	}
	return newWalk(size, append(strides, tensor.Contiguous(size).Stride)...)
}

// grain is how many elements are worth a goroutine.
const grain = 1 << 14

// each calls f for runs of n elements along the innermost dimension: at are the
// places of the first one in each operand, step the strides.
func (w *walk) each(f func(at []int, n int, step []int)) {
	inner := len(w.size) - 1
	parallel(w.total, grain, func(from, to int) {
		index, at := make([]int, inner+1), make([]int, len(w.stride[0]))
		for from < to {
			rest := from
			clear(at)
			for d := inner; d >= 0; d-- {
				index[d] = rest % w.size[d]
				rest /= w.size[d]
				for o, s := range w.stride[d] {
					at[o] += index[d] * s
				}
			}
			n := min(w.size[inner]-index[inner], to-from)
			f(at, n, w.stride[inner])
			from += n
		}
	})
}
