package cpu

import (
	"math"

	"github.com/memplan/memplan/internal/approx"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// lines calls f for each row of the last dimension of the operands, all of the
// first one's sizes: at are the places of its first elements.
func (l *launch) lines(f func(at []int)) {
	size := l.call.T[0].Size
	all := make([]int, len(l.call.T))
	for i := range all {
		all[i] = i
	}
	l.linesOf(size.Remove(size.Len()-1), all, f)
}

// linesOf does so for the dimensions that come first in some operands; the
// others are the same for all rows.
func (l *launch) linesOf(lead tensor.Dims, operands []int, f func(at []int)) {
	strides := make([]tensor.Dims, len(l.call.T))
	for _, o := range operands {
		if s := l.call.T[o].Stride; l.has(o) {
			for s.Len() > lead.Len() {
				s = s.Remove(s.Len() - 1)
			}
			strides[o] = s
		}
	}
	w := newWalk(lead, strides...)
	parallel(w.total, l.rowGrain(), func(from, to int) {
		at := make([]int, len(strides))
		for n := from; n < to; n++ {
			w.place(n, at)
			f(at)
		}
	})
}

// rowGrain is how many rows are worth a goroutine.
func (l *launch) rowGrain() int {
	most := int64(1)
	for i := range l.call.T {
		if s := l.call.T[i].Size; s.Len() > 0 {
			most = max(most, s.At(-1))
		}
	}
	return max(1, grain/4/int(most))
}

// line is a row of an operand.
type line[T float] struct {
	data []T
	step int
}

func lineOf[T float](l *launch, operand, at int) line[T] {
	data := view[T](l, operand)
	if data != nil {
		data = data[at:]
	}
	return line[T]{data, l.columnStride(operand)}
}

// numbers are n elements of a row as they lie, or, if not side by side, copied to a buffer.
func (r line[T]) numbers(n int, buffer []T) []T {
	if r.step == 1 {
		return r.data[:n]
	}
	buffer = buffer[:n]
	for i := range buffer {
		buffer[i] = r.data[i*r.step]
	}
	return buffer
}

// room is where n elements of a row are written: its own, or a buffer that put copies there.
func (r line[T]) room(n int, buffer []T) []T {
	if r.step == 1 {
		return r.data[:n]
	}
	return buffer[:n]
}

func (r line[T]) put(from []T) {
	if r.step == 1 {
		return
	}
	for i, v := range from {
		r.data[i*r.step] = v
	}
}

// exponentials writes the exponentials of what numbers lie above shift, unless y is nil, and returns their
// sum.
func exponentials[T float](y, x []T, shift float64) float64 {
	var all sums
	if single, ok := any(x).([]float32); ok {
		to, _ := any(y).([]float32)
		for i, v := range single {
			e := approx.Exp(float64(v) - shift)
			all[i%lanes] += e
			if to != nil {
				to[i] = float32(e)
			}
		}
		return all.total()
	}
	for i, v := range x {
		e := math.Exp(float64(v) - shift)
		all[i%lanes] += e
		if y != nil {
			y[i] = T(e)
		}
	}
	return all.total()
}

// softmaxes is a softmax or its logarithm (vec_host_softmax_lastdim in
// aten/src/ATen/native/cpu/SoftMaxKernel.cpp). A row of -inf gives NaN or, if safe is
// set, zeros.
func softmaxes[T float](logarithm, safe bool) runner {
	return func(l *launch) error {
		size := l.call.T[0].Size
		if size.Len() == 0 {
			return l.wrongRank(0, 1)
		}
		if err := l.sameSizes(); err != nil || size.Numel() == 0 {
			return err
		}
		n := int(size.At(-1))
		l.lines(func(at []int) {
			var lend buffers[T]
			defer lend.release()
			to := lineOf[T](l, 0, at[0])
			a, y := lineOf[T](l, 1, at[1]).numbers(n, lend.get(n)), to.room(n, lend.get(n))
			defer to.put(y)
			most := T(math.Inf(-1))
			for _, v := range a {
				most = max(most, v)
			}
			shift := float64(most)
			switch {
			case safe && math.IsInf(shift, -1):
				clear(y)
			case logarithm:
				log := math.Log(exponentials(nil, a, shift))
				for i, v := range a {
					y[i] = T(float64(v) - shift - log)
				}
			default:
				sum := exponentials(y, a, shift)
				for i, v := range y {
					y[i] = T(float64(v) / sum)
				}
			}
		})
		return nil
	}
}

// softmaxGrads is r*(g - Σ g*r) or, of the logarithm, g - exp(r)*Σ g
// (vec_host_softmax_backward_lastdim).
func softmaxGrads[T float](logarithm bool) runner {
	return func(l *launch) error {
		size := l.call.T[0].Size
		if size.Len() == 0 {
			return l.wrongRank(0, 1)
		}
		if err := l.sameSizes(); err != nil || size.Numel() == 0 {
			return err
		}
		n := int(size.At(-1))
		exp := approx.ExpFor[T]()
		l.lines(func(at []int) {
			var lend buffers[T]
			defer lend.release()
			to := lineOf[T](l, 0, at[0])
			g, r, y := lineOf[T](l, 1, at[1]).numbers(n, lend.get(n)), lineOf[T](l, 2, at[2]).numbers(n, lend.get(n)), to.room(n, lend.get(n))
			defer to.put(y)
			var all sums
			for i, v := range g {
				if logarithm {
					all[i%lanes] += float64(v)
				} else {
					all[i%lanes] += float64(v) * float64(r[i])
				}
			}
			sum := all.total()
			for i, v := range g {
				if logarithm {
					y[i] = T(float64(v) - exp(float64(r[i]))*sum)
				} else {
					y[i] = T(float64(r[i]) * (float64(v) - sum))
				}
			}
		})
		return nil
	}
}

// sameSizes fails unless all operands have the first one's sizes.
func (l *launch) sameSizes() error {
	var want []int
	for _, n := range l.call.T[0].Size.Slice() {
		want = append(want, int(n))
	}
	for i := range l.call.T {
		if err := l.shape(i, want...); err != nil {
			return err
		}
	}
	return nil
}

// softmaxRows are softmaxes over the last dimension.
var softmaxRows = map[*kernel.Kernel]row{
	kernel.Softmax:        floats(softmaxes[float32](false, false), softmaxes[float64](false, false)),
	kernel.SafeSoftmax:    floats(softmaxes[float32](false, true), softmaxes[float64](false, true)),
	kernel.LogSoftmax:     floats(softmaxes[float32](true, false), softmaxes[float64](true, false)),
	kernel.SoftmaxGrad:    floats(softmaxGrads[float32](false), softmaxGrads[float64](false)),
	kernel.LogSoftmaxGrad: floats(softmaxGrads[float32](true), softmaxGrads[float64](true)),
}
