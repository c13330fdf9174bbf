package cpu

import (
	"fmt"
	"sync/atomic"

	"github.com/memplan/memplan/internal/kernel"
)

func embedding[T float](l *launch) error {
	m, n, d, v := l.size(0, 0), l.size(0, 1), l.size(0, 2), l.size(1, 0)
	if err := first(l.shape(1, v, d), l.shape(2, m, n)); err != nil || m*n*d == 0 {
		return err
	}
	y, w, index := view[T](l, 0), view[T](l, 1), view[int64](l, 2)
	var wrong atomic.Pointer[int64]
	parallel(m*n, channelGrain(d), func(from, to int) {
		for i := from; i < to; i++ {
			at := index[i/n*l.stride(2, 0)+i%n*l.stride(2, 1)]
			if at < 0 || at >= int64(v) {
				wrong.Store(&at)
				continue
			}
			y := y[i/n*l.stride(0, 0)+i%n*l.stride(0, 1):]
			for j := range d {
				y[j*l.stride(0, 2)] = w[int(at)*l.stride(1, 0)+j*l.stride(1, 1)]
			}
		}
	})
	return outOfRange(wrong.Load(), v)
}

// embeddingColumns is how many columns of a table one goroutine adds to.
const embeddingColumns = 32

// lines are rows that are added to those of a table: each has the row of the table that
// it belongs to, -1 of none, where its first element is, and a factor.
type lines struct {
	row, at []int
	factor  []float64 // nil: 1
	step    int       // of its elements
}

// addLines fills a table of v rows and d columns, with strides, with the sums of its lines in
// their order; goroutines have columns to themselves.
func addLines[T float](table []T, v, d int, stride [2]int, from []T, ls *lines) {
	parallel(d, embeddingColumns, func(first, end int) {
		for i := range v {
			for j := first; j < end; j++ {
				table[i*stride[0]+j*stride[1]] = 0
			}
		}
		for i, row := range ls.row {
			if row < 0 {
				continue
			}
			factor := T(1)
			if ls.factor != nil {
				factor = T(ls.factor[i])
			}
			for j := first; j < end; j++ {
				table[row*stride[0]+j*stride[1]] += factor * from[ls.at[i]+j*ls.step]
			}
		}
	})
}

func embeddingGrad[T float](l *launch) error {
	m, n, v, d := l.size(1, 0), l.size(1, 1), l.size(0, 0), l.size(0, 1)
	if err := first(l.shape(1, m, n, d), l.shape(2, m, n)); err != nil || v*d == 0 {
		return err
	}
	index, padding, ls := view[int64](l, 2), l.call.I[0], lines{step: l.stride(1, 2)}
	for i := range m {
		for j := range n {
			row := index[i*l.stride(2, 0)+j*l.stride(2, 1)]
			switch {
			case row < 0 || row >= int64(v):
				return outOfRange(&row, v)
			case row == padding:
				row = -1
			}
			ls.row, ls.at = append(ls.row, int(row)), append(ls.at, i*l.stride(1, 0)+j*l.stride(1, 1))
		}
	}
	addLines(view[T](l, 0), v, d, [2]int{l.stride(0, 0), l.stride(0, 1)}, view[T](l, 1), &ls)
	return nil
}

// indexed are the rows that an index names, of v.
func (l *launch) indexed(operand, v int) ([]int, error) {
	index, rows := view[int64](l, operand), make([]int, l.size(operand, 0))
	for i := range rows {
		at := index[i*l.stride(operand, 0)]
		if at < -int64(v) || at >= int64(v) {
			return nil, outOfRange(&at, v)
		}
		if rows[i] = int(at); at < 0 {
			rows[i] += v
		}
	}
	return rows, nil
}

// index copies elements as they are, whatever their type.
func index(l *launch) error {
	const y, x, at = 0, 1, 2
	o, n, d, v := l.size(y, 0), l.size(y, 1), l.size(y, 2), l.size(x, 1)
	if err := first(l.shape(x, o, v, d), l.shape(at, n)); err != nil || o*n*d == 0 {
		return err
	}
	if a, b := l.call.T[y].DType, l.call.T[x].DType; a != b {
		return fmt.Errorf("operand x is of type %v, not %v", b, a)
	}
	rows, err := l.indexed(at, v)
	if err != nil {
		return err
	}
	bytes := int(l.call.T[y].DType.Size())
	parallel(o*n, channelGrain(d), func(from, to int) {
		for i := from; i < to; i++ {
			out := l.data[y][(i/n*l.stride(y, 0)+i%n*l.stride(y, 1))*bytes:]
			in := l.data[x][(i/n*l.stride(x, 0)+rows[i%n]*l.stride(x, 1))*bytes:]
			for j := range d {
				copy(out[j*l.stride(y, 2)*bytes:][:bytes], in[j*l.stride(x, 2)*bytes:])
			}
		}
	})
	return nil
}

func indexGrad[T float](l *launch) error {
	const gx, g, at = 0, 1, 2
	o, v, d, n := l.size(gx, 0), l.size(gx, 1), l.size(gx, 2), l.size(g, 1)
	if err := first(l.shape(g, o, n, d), l.shape(at, n)); err != nil || o*v*d == 0 {
		return err
	}
	rows, err := l.indexed(at, v)
	if err != nil {
		return err
	}
	ls := lines{row: rows, step: l.stride(g, 2)}
	for i := range n {
		ls.at = append(ls.at, i*l.stride(g, 1))
	}
	table, from := view[T](l, gx), view[T](l, g)
	for i := range o {
		addLines(table[i*l.stride(gx, 0):], v, d, [2]int{l.stride(gx, 1), l.stride(gx, 2)}, from[min(i*l.stride(g, 0), len(from)):], &ls)
	}
	return nil
}

// pairs are the rows of a matrix that two indices name, of u times v rows.
func (l *launch) pairs(first, second, u, v int) ([]int, error) {
	rows, err := l.indexed(first, u)
	if err != nil {
		return nil, err
	}
	columns, err := l.indexed(second, v)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i] = rows[i]*v + columns[i]
	}
	return rows, nil
}

// indexPairs copies elements as they are, whatever their type.
func indexPairs(l *launch) error {
	const y, x, one, two = 0, 1, 2, 3
	n, d, u, v := l.size(y, 0), l.size(y, 1), l.size(x, 0), l.size(x, 1)
	if err := first(l.shape(x, u, v, d), l.shape(one, n), l.shape(two, n)); err != nil || n*d == 0 {
		return err
	}
	if a, b := l.call.T[y].DType, l.call.T[x].DType; a != b {
		return fmt.Errorf("operand x is of type %v, not %v", b, a)
	}
	rows, err := l.pairs(one, two, u, v)
	if err != nil {
		return err
	}
	bytes := int(l.call.T[y].DType.Size())
	parallel(n, channelGrain(d), func(from, to int) {
		for i := from; i < to; i++ {
			out := l.data[y][i*l.stride(y, 0)*bytes:]
			in := l.data[x][(rows[i]/v*l.stride(x, 0)+rows[i]%v*l.stride(x, 1))*bytes:]
			for j := range d {
				copy(out[j*l.stride(y, 1)*bytes:][:bytes], in[j*l.stride(x, 2)*bytes:])
			}
		}
	})
	return nil
}

func indexPairsGrad[T float](l *launch) error {
	const gx, g, one, two = 0, 1, 2, 3
	u, v, d, n := l.size(gx, 0), l.size(gx, 1), l.size(gx, 2), l.size(g, 0)
	if err := first(l.shape(g, n, d), l.shape(one, n), l.shape(two, n)); err != nil || u*v*d == 0 {
		return err
	}
	rows, err := l.pairs(one, two, u, v)
	if err != nil {
		return err
	}
	table, from := view[T](l, gx), view[T](l, g)
	for i := range u { // a table for each
		ls := lines{step: l.stride(g, 1)}
		for k, row := range rows {
			if row/v == i {
				ls.row, ls.at = append(ls.row, row%v), append(ls.at, k*l.stride(g, 0))
			}
		}
		addLines(table[i*l.stride(gx, 0):], v, d, [2]int{l.stride(gx, 1), l.stride(gx, 2)}, from, &ls)
	}
	return nil
}

// embeddingBag is aten/src/ATen/native/EmbeddingBag.cpp.
func embeddingBag[T float](l *launch) error {
	const y, bag, count, weight, at, offsets, scale = 0, 1, 2, 3, 4, 5, 6
	b, d, v, n := l.size(y, 0), l.size(y, 1), l.size(weight, 0), l.size(at, 0)
	if err := first(l.shape(y, b, d), l.shape(bag, n), l.shape(count, b), l.shape(weight, v, d), l.shape(at, n), l.shape(offsets, b), l.shape(scale, n)); err != nil {
		return err
	}
	out, bags, counts := view[T](l, y), view[int64](l, bag), view[int64](l, count)
	table, index, starts, scales := view[T](l, weight), view[int64](l, at), view[int64](l, offsets), view[T](l, scale)
	mean, padding := l.call.I[0] != 0, l.call.I[1]
	sum := make([]float64, d)
	for k := range b {
		from, to := starts[k*l.stride(offsets, 0)], int64(n)
		if k+1 < b {
			to = starts[(k+1)*l.stride(offsets, 0)]
		}
		if from < 0 || to > int64(n) {
			return fmt.Errorf("offsets %d to %d are out of range [0, %d]", from, to, n)
		}
		clear(sum)
		counted := int64(0)
		for i := int(from); i < int(to); i++ {
			row := index[i*l.stride(at, 0)]
			if row < 0 || row >= int64(v) {
				return outOfRange(&row, v)
			}
			if row == padding {
				bags[i*l.stride(bag, 0)] = 0
				continue
			}
			bags[i*l.stride(bag, 0)] = int64(k)
			counted++
			by := 1.0
			if scales != nil {
				by = float64(scales[i*l.stride(scale, 0)])
			}
			for j := range sum {
				sum[j] += by * float64(table[int(row)*l.stride(weight, 0)+j*l.stride(weight, 1)])
			}
		}
		counts[k*l.stride(count, 0)] = counted
		for j, s := range sum {
			if mean && counted > 0 {
				s /= float64(counted)
			}
			out[k*l.stride(y, 0)+j*l.stride(y, 1)] = T(s)
		}
	}
	return nil
}

func embeddingBagGrad[T float](l *launch) error {
	const gweight, g, at, bag, count, scale = 0, 1, 2, 3, 4, 5
	v, d, b, n := l.size(gweight, 0), l.size(gweight, 1), l.size(g, 0), l.size(at, 0)
	if err := first(l.shape(g, b, d), l.shape(at, n), l.shape(bag, n), l.shape(count, b), l.shape(scale, n)); err != nil || v*d == 0 {
		return err
	}
	index, bags, counts, scales := view[int64](l, at), view[int64](l, bag), view[int64](l, count), view[T](l, scale)
	mean, padding, ls := l.call.I[0] != 0, l.call.I[1], lines{step: l.stride(g, 1)}
	for i := range n {
		row, k := index[i*l.stride(at, 0)], bags[i*l.stride(bag, 0)]
		switch {
		case row < 0 || row >= int64(v):
			return outOfRange(&row, v)
		case k < 0 || k >= int64(b):
			return outOfRange(&k, b)
		case row == padding:
			row = -1
		}
		factor := 1.0
		if scales != nil {
			factor = float64(scales[i*l.stride(scale, 0)])
		}
		if mean {
			factor /= float64(counts[int(k)*l.stride(count, 0)])
		}
		ls.row, ls.at, ls.factor = append(ls.row, int(row)), append(ls.at, int(k)*l.stride(g, 0)), append(ls.factor, factor)
	}
	addLines(view[T](l, gweight), v, d, [2]int{l.stride(gweight, 0), l.stride(gweight, 1)}, view[T](l, g), &ls)
	return nil
}

// lookupRows read at indices.
var lookupRows = map[*kernel.Kernel]row{
	kernel.Embedding:     floats(embedding[float32], embedding[float64]),
	kernel.EmbeddingGrad: floats(embeddingGrad[float32], embeddingGrad[float64]),

	kernel.Index:            everything(0, true, index),
	kernel.IndexGrad:        floats(indexGrad[float32], indexGrad[float64]),
	kernel.IndexPairs:       everything(0, true, indexPairs),
	kernel.IndexPairsGrad:   floats(indexPairsGrad[float32], indexPairsGrad[float64]),
	kernel.EmbeddingBag:     floats(embeddingBag[float32], embeddingBag[float64]),
	kernel.EmbeddingBagGrad: floats(embeddingBagGrad[float32], embeddingBagGrad[float64]),
}
