package cpu

import (
	"math"

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

func (r line[T]) get(i int) float64    { return float64(r.data[i*r.step]) }
func (r line[T]) set(i int, v float64) { r.data[i*r.step] = T(v) }

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
			y, a := lineOf[T](l, 0, at[0]), lineOf[T](l, 1, at[1])
			most := math.Inf(-1)
			for i := range n {
				most = max(most, a.get(i))
			}
			if safe && math.IsInf(most, -1) {
				for i := range n {
					y.set(i, 0)
				}
				return
			}
			sum := 0.0
			for i := range n {
				e := math.Exp(a.get(i) - most)
				sum += e
				if !logarithm {
					y.set(i, e)
				}
			}
			if logarithm {
				log := math.Log(sum)
				for i := range n {
					y.set(i, a.get(i)-most-log)
				}
				return
			}
			for i := range n {
				y.set(i, y.get(i)/sum)
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
		l.lines(func(at []int) {
			y, g, r := lineOf[T](l, 0, at[0]), lineOf[T](l, 1, at[1]), lineOf[T](l, 2, at[2])
			sum := 0.0
			for i := range n {
				if logarithm {
					sum += g.get(i)
				} else {
					sum += g.get(i) * r.get(i)
				}
			}
			for i := range n {
				if logarithm {
					y.set(i, g.get(i)-math.Exp(r.get(i))*sum)
				} else {
					y.set(i, r.get(i)*(g.get(i)-sum))
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
