package cpu

import (
	"sync/atomic"

	"github.com/memplan/memplan/internal/kernel"
)

// lookupSizes checks the operands of a lookup: rows [n, d], table [v, d] and
// index [n].
func (l *launch) lookupSizes(rows, table, index int) (n, d, v int, err error) {
	n, d, v = l.size(rows, 0), l.size(rows, 1), l.size(table, 0)
	return n, d, v, first(l.shape(rows, n, d), l.shape(table, v, d), l.shape(index, n))
}

func embedding[T float](l *launch) error {
	n, d, v, err := l.lookupSizes(0, 1, 2)
	if err != nil || n*d == 0 {
		return err
	}
	y, w, index := view[T](l, 0), view[T](l, 1), view[int64](l, 2)
	var wrong atomic.Pointer[int64]
	parallel(n, channelGrain(d), func(from, to int) {
		for i := from; i < to; i++ {
			at := index[i*l.stride(2, 0)]
			if at < 0 || at >= int64(v) {
				wrong.Store(&at)
				continue
			}
			for j := range d {
				y[i*l.stride(0, 0)+j*l.stride(0, 1)] = w[int(at)*l.stride(1, 0)+j*l.stride(1, 1)]
			}
		}
	})
	return outOfRange(wrong.Load(), v)
}

// embeddingColumns is how many columns of a table one goroutine adds to.
const embeddingColumns = 32

// embeddingGrad adds rows in the order of the indices; goroutines have columns
// to themselves.
func embeddingGrad[T float](l *launch) error {
	n, d, v, err := l.lookupSizes(1, 0, 2)
	if err != nil || v*d == 0 {
		return err
	}
	gw, g, index, padding := view[T](l, 0), view[T](l, 1), view[int64](l, 2), l.call.I[0]
	for i := range n {
		if at := index[i*l.stride(2, 0)]; at < 0 || at >= int64(v) {
			return outOfRange(&at, v)
		}
	}
	parallel(d, embeddingColumns, func(from, to int) {
		for i := range v {
			for j := from; j < to; j++ {
				gw[i*l.stride(0, 0)+j*l.stride(0, 1)] = 0
			}
		}
		for i := range n {
			at := index[i*l.stride(2, 0)]
			if at == padding {
				continue
			}
			for j := from; j < to; j++ {
				gw[int(at)*l.stride(0, 0)+j*l.stride(0, 1)] += g[i*l.stride(1, 0)+j*l.stride(1, 1)]
			}
		}
	})
	return nil
}

// lookupRows read at indices.
var lookupRows = map[*kernel.Kernel]row{
	kernel.Embedding:     floats(embedding[float32], embedding[float64]),
	kernel.EmbeddingGrad: floats(embeddingGrad[float32], embeddingGrad[float64]),
}
