package cpu

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// Attention goes over blocks of queries and keys, as in Dao et al.,
// FlashAttention (2022), algorithms 1 and 4: the scores of a block are all that
// is ever stored of them.
const (
	queryBlock = 64
	keyBlock   = 128
)

// attention is a call of one of the two kernels: its operands' places, of which
// lse and mask may be absent, and its numbers.
type attention struct {
	l                   *launch
	y, lse, q, k, v     int
	mask                int
	b, h, nq, nk, e, ev int
	shared              int // heads of queries for one of keys
	causal              bool
	seed                uint64
	scale, keep         float64 // of a weight that is not dropped
	p                   float32
}

func (l *launch) newAttention(y, lse, q, k, v, mask int) (*attention, error) {
	for _, o := range []int{q, k, v} {
		if l.call.T[o].Size.Len() != 4 {
			return nil, l.wrongRank(o, 4)
		}
	}
	a := &attention{l: l, y: y, lse: lse, q: q, k: k, v: v, mask: mask,
		b: l.size(q, 0), h: l.size(q, 1), nq: l.size(q, 2), nk: l.size(k, 2), e: l.size(q, 3), ev: l.size(v, 3),
		shared: 1, causal: l.call.I[0] != 0, seed: uint64(l.call.I[1]), scale: l.call.F[0], p: float32(l.call.F[1]), keep: 1 / (1 - l.call.F[1])}
	kh := l.size(k, 1)
	if kh > 0 {
		if a.h%kh != 0 {
			return nil, fmt.Errorf("%d heads of queries cannot share %d of keys", a.h, kh)
		}
		a.shared = a.h / kh
	}
	return a, first(l.shape(y, a.b, a.h, a.nq, a.ev), l.shape(lse, a.b, a.h, a.nq), l.shape(k, a.b, kh, a.nk, a.e), l.shape(v, a.b, kh, a.nk, a.ev),
		l.shape(mask, a.b, a.h, a.nq, a.nk))
}

// head is the matrix [positions, features] of an operand for one head of one
// element of the batch.
func head[T float](a *attention, operand, b, h int) matrix[T] {
	l := a.l
	return block[T](l, operand, b*l.stride(operand, 0)+h*l.stride(operand, 1), l.size(operand, 2), l.size(operand, 3), l.stride(operand, 2), l.stride(operand, 3))
}

// part is some rows of a matrix side by side, copied to a buffer unless they
// are so.
func (m matrix[T]) part(from, n int, buffer []T) matrix[T] {
	p := matrix[T]{nil, n, m.columns, m.row, m.column}
	if n > 0 && m.columns > 0 {
		p.data = m.at(from, 0)
	}
	if p.sideBySide() {
		return matrix[T]{p.data, n, m.columns, max(m.row, m.columns), 1}
	}
	p.copyTo(buffer, 0, n)
	return matrix[T]{buffer, n, m.columns, m.columns, 1}
}

// turned is some rows of a matrix, transposed into a buffer.
func (m matrix[T]) turned(from, n int, buffer []T) matrix[T] {
	if n > 0 && m.columns > 0 {
		matrix[T]{m.at(from, 0), n, m.columns, m.row, m.column}.transposed().copyTo(buffer, 0, m.columns)
	}
	return matrix[T]{buffer, m.columns, n, n, 1}
}

// product writes scale * a bᵀ into a buffer.
func product[T float](scale float64, a, b matrix[T], buffer []T) matrix[T] {
	c := matrix[T]{buffer, a.rows, b.rows, b.rows, 1}
	clear(buffer[:a.rows*b.rows])
	if a.columns > 0 {
		dot(T(scale), a, b, c)
	}
	return c
}

// seen adds the mask to the scores of a block and makes -inf of those that are
// forbidden.
func seen[T float](a *attention, s matrix[T], b, h, i0, j0 int) {
	l, forbidden := a.l, T(math.Inf(-1))
	if l.has(a.mask) {
		base := b*l.stride(a.mask, 0) + h*l.stride(a.mask, 1) + i0*l.stride(a.mask, 2) + j0*l.stride(a.mask, 3)
		si, sj := l.stride(a.mask, 2), l.stride(a.mask, 3)
		if l.call.T[a.mask].DType == l.call.T[a.q].DType {
			mask := view[T](l, a.mask)
			for i := range s.rows {
				for j := range s.columns {
					s.data[i*s.row+j] += mask[base+i*si+j*sj]
				}
			}
		} else {
			mask := view[uint8](l, a.mask)
			for i := range s.rows {
				for j := range s.columns {
					if mask[base+i*si+j*sj] == 0 {
						s.data[i*s.row+j] = forbidden
					}
				}
			}
		}
	}
	if a.causal {
		for i := range s.rows {
			for j := max(0, i0+i+1-j0); j < s.columns; j++ {
				s.data[i*s.row+j] = forbidden
			}
		}
	}
}

// drop calls f for each weight of a block with what dropout multiplies it by.
func (a *attention) drop(b, h, i0, j0, rows, columns int, f func(i, j int, by float64)) {
	draw := stream{seed: a.seed}
	for i := range rows {
		at := (int64(b*a.h+h)*int64(a.nq)+int64(i0+i))*int64(a.nk) + int64(j0)
		for j := range columns {
			by := 0.0
			if draw.uniform(at+int64(j)) >= a.p {
				by = a.keep
			}
			f(i, j, by)
		}
	}
}

// buffers lends several slices.
type buffers[T float] struct{ done []func() }

func (b *buffers[T]) get(n int) []T {
	s, done := borrow[T](n)
	b.done = append(b.done, done)
	return s
}

func (b *buffers[T]) release() {
	for _, f := range b.done {
		f()
	}
}

func attend[T float](l *launch) error {
	a, err := l.newAttention(0, 1, 2, 3, 4, 5)
	if err != nil {
		return err
	}
	blocks := (a.nq + queryBlock - 1) / queryBlock
	parallel(a.b*a.h*blocks, 1, func(from, to int) {
		var lend buffers[T]
		defer lend.release()
		qBuffer, kBuffer, vBuffer := lend.get(queryBlock*a.e), lend.get(keyBlock*a.e), lend.get(keyBlock*a.ev)
		scores, sums := lend.get(queryBlock*keyBlock), lend.get(queryBlock*a.ev)
		for task := from; task < to; task++ {
			b, h, i0 := task/blocks/a.h, task/blocks%a.h, task%blocks*queryBlock
			n := min(queryBlock, a.nq-i0)
			q := head[T](a, a.q, b, h).part(i0, n, qBuffer)
			k, v := head[T](a, a.k, b, h/a.shared), head[T](a, a.v, b, h/a.shared)
			var most, total [queryBlock]float64
			for i := range n {
				most[i] = math.Inf(-1)
			}
			out := matrix[T]{sums, n, a.ev, a.ev, 1}
			clear(sums)
			for j0 := 0; j0 < a.nk && !(a.causal && j0 >= i0+n); j0 += keyBlock {
				m := min(keyBlock, a.nk-j0)
				s := product(a.scale, q, k.part(j0, m, kBuffer), scores)
				seen(a, s, b, h, i0, j0)
				for i := range n {
					most[i], total[i] = s.exponentials(i, most[i], total[i], out)
				}
				if a.p > 0 {
					a.drop(b, h, i0, j0, n, m, func(i, j int, by float64) { s.data[i*s.row+j] *= T(by) })
				}
				if a.ev > 0 {
					dot(1, s, v.turned(j0, m, vBuffer), out)
				}
			}
			y := head[T](a, a.y, b, h)
			for i := range n {
				lse := math.Inf(1)
				if total[i] != 0 {
					lse = most[i] + math.Log(total[i])
				}
				put[T](l, a.lse, b*l.stride(a.lse, 0)+h*l.stride(a.lse, 1)+(i0+i)*l.stride(a.lse, 2), lse)
				for e := range a.ev {
					w := 0.0
					if total[i] != 0 {
						w = out.get(i, e, 0) / total[i]
					}
					y.data[(i0+i)*y.row+e*y.column] = T(w)
				}
			}
		}
	})
	return nil
}

// exponentials makes of a row of scores the exponentials of what they lie below
// the largest so far, and brings the sums so far to that.
func (m matrix[T]) exponentials(i int, most, total float64, sums matrix[T]) (newMost, newTotal float64) {
	row := m.data[i*m.row:][:m.columns]
	newMost = most
	for _, s := range row {
		newMost = max(newMost, float64(s))
	}
	if math.IsInf(newMost, -1) { // nothing is seen yet
		clear(row)
		return newMost, total
	}
	if by := math.Exp(most - newMost); by != 1 {
		total *= by
		for e := range sums.columns {
			sums.data[i*sums.row+e] *= T(by)
		}
	}
	return newMost, total + exponentials(row, row, newMost)
}

func attendGrad[T float](l *launch) error {
	a, err := l.newAttention(4, 5, 6, 7, 8, 9)
	if err != nil {
		return err
	}
	const gq, gk, gv, g = 0, 1, 2, 3
	kh := a.h / a.shared
	err = first(l.shape(gq, a.b, a.h, a.nq, a.e), l.shape(gk, a.b, kh, a.nk, a.e), l.shape(gv, a.b, kh, a.nk, a.ev), l.shape(g, a.b, a.h, a.nq, a.ev))
	if err != nil {
		return err
	}
	parallel(a.b*kh, 1, func(from, to int) {
		for task := from; task < to; task++ {
			attendGradHead[T](a, task/kh, task%kh)
		}
	})
	return nil
}

// gradHead are the matrices of a head of queries, with what is common to the gradients of
// each query, and the logarithm of the sum of its weights.
type gradHead[T float] struct {
	h              int
	queries, grads matrix[T]
	sum            matrix[T] // of the gradient of the queries
	delta, lse     []float64
}

func newGradHead[T float](a *attention, b, h, g int, sum []T) *gradHead[T] {
	l := a.l
	o := &gradHead[T]{h: h, queries: head[T](a, a.q, b, h), grads: head[T](a, g, b, h), sum: matrix[T]{sum, a.nq, a.e, a.e, 1},
		delta: make([]float64, a.nq), lse: make([]float64, a.nq)}
	y := head[T](a, a.y, b, h)
	for i := range a.nq {
		for e := range a.ev {
			o.delta[i] += o.grads.get(i, e, 0) * y.get(i, e, 0)
		}
		o.lse[i] = float64(view[T](l, a.lse)[b*l.stride(a.lse, 0)+h*l.stride(a.lse, 1)+i*l.stride(a.lse, 2)])
	}
	clear(sum)
	return o
}

// attendGradHead goes over one head of keys: blocks of keys and, for each, the heads of
// queries that share it, and blocks of queries.
func attendGradHead[T float](a *attention, b, kh int) {
	const gq, gk, gv, g = 0, 1, 2, 3
	var lend buffers[T]
	defer lend.release()
	keys, values := head[T](a, a.k, b, kh), head[T](a, a.v, b, kh)
	wide := max(a.e, a.ev)
	var bq, bg, bk, bv, bqt, bgt, bkt = lend.get(queryBlock * wide), lend.get(queryBlock * wide), lend.get(keyBlock * wide), lend.get(keyBlock * wide),
		lend.get(queryBlock * wide), lend.get(queryBlock * wide), lend.get(keyBlock * wide)
	scores, weights, turned := lend.get(queryBlock*keyBlock), lend.get(queryBlock*keyBlock), lend.get(queryBlock*keyBlock)
	sumK, sumV := matrix[T]{lend.get(keyBlock * a.e), 0, a.e, a.e, 1}, matrix[T]{lend.get(keyBlock * a.ev), 0, a.ev, a.ev, 1}
	var heads []*gradHead[T]
	for h := kh * a.shared; h < (kh+1)*a.shared; h++ {
		heads = append(heads, newGradHead(a, b, h, g, lend.get(a.nq*a.e)))
	}
	for j0 := 0; j0 < a.nk; j0 += keyBlock {
		m := min(keyBlock, a.nk-j0)
		k, v, kt := keys.part(j0, m, bk), values.part(j0, m, bv), keys.turned(j0, m, bkt)
		sumK.rows, sumV.rows = m, m
		clear(sumK.data)
		clear(sumV.data)
		for _, o := range heads {
			for i0 := 0; i0 < a.nq; i0 += queryBlock {
				n := min(queryBlock, a.nq-i0)
				if a.causal && i0+n <= j0 {
					continue // sees none of these keys
				}
				p := product(a.scale, o.queries.part(i0, n, bq), k, scores)
				seen(a, p, b, o.h, i0, j0)
				for i := range n {
					row := p.data[i*p.row:][:m]
					exponentials(row, row, o.lse[i0+i])
				}
				ds := product(1, o.grads.part(i0, n, bg), v, weights) // of the dropped weights
				dropped := func(i, j int, by float64) {
					at := i*m + j
					ds.data[at] = T(float64(p.data[at]) * (float64(ds.data[at])*by - o.delta[i0+i]) * a.scale)
					p.data[at] *= T(by)
				}
				if a.p > 0 {
					a.drop(b, o.h, i0, j0, n, m, dropped)
				} else {
					for i := range n {
						weights, delta := p.data[i*m:][:m], o.delta[i0+i]
						for j, v := range ds.data[i*m:][:m] {
							ds.data[i*m+j] = T(float64(weights[j]) * (float64(v) - delta) * a.scale)
						}
					}
				}
				if a.ev > 0 {
					dot(1, p.turned(0, n, turned), o.grads.turned(i0, n, bgt), sumV)
				}
				if a.e > 0 {
					dot(1, ds, kt, matrix[T]{o.sum.at(i0, 0), n, a.e, a.e, 1})
					dot(1, ds.turned(0, n, turned), o.queries.turned(i0, n, bqt), sumK)
				}
			}
		}
		sumK.copyInto(head[T](a, gk, b, kh), j0)
		sumV.copyInto(head[T](a, gv, b, kh), j0)
	}
	for _, o := range heads {
		o.sum.copyInto(head[T](a, gq, b, o.h), 0)
	}
}

// attendMaskGrad writes the gradient of a mask block by block.
func attendMaskGrad[T float](l *launch) error {
	const gmask, g = 0, 1
	a, err := l.newAttention(2, 3, 4, 5, 6, 7)
	if err != nil {
		return err
	}
	if err := first(l.shape(gmask, a.b, a.h, a.nq, a.nk), l.shape(g, a.b, a.h, a.nq, a.ev)); err != nil {
		return err
	}
	parallel(a.b*a.h, 1, func(from, to int) {
		var lend buffers[T]
		defer lend.release()
		bq, bg, bk, bv := lend.get(queryBlock*a.e), lend.get(queryBlock*a.ev), lend.get(keyBlock*a.e), lend.get(keyBlock*a.ev)
		scores, weights, none := lend.get(queryBlock*keyBlock), lend.get(queryBlock*keyBlock), lend.get(0)
		for task := from; task < to; task++ {
			b, h := task/a.h, task%a.h
			o := newGradHead(a, b, h, g, none)
			keys, values, out := head[T](a, a.k, b, h/a.shared), head[T](a, a.v, b, h/a.shared), head[T](a, gmask, b, h)
			for j0 := 0; j0 < a.nk; j0 += keyBlock {
				m := min(keyBlock, a.nk-j0)
				k, v := keys.part(j0, m, bk), values.part(j0, m, bv)
				for i0 := 0; i0 < a.nq; i0 += queryBlock {
					n := min(queryBlock, a.nq-i0)
					p := product(a.scale, o.queries.part(i0, n, bq), k, scores)
					seen(a, p, b, h, i0, j0)
					ds := product(1, o.grads.part(i0, n, bg), v, weights)
					put := func(i, j int, by float64) {
						w := math.Exp(float64(p.data[i*p.row+j]) - o.lse[i0+i])
						out.data[(i0+i)*out.row+(j0+j)*out.column] = T(w * (float64(ds.data[i*m+j])*by - o.delta[i0+i]))
					}
					if a.p > 0 {
						a.drop(b, h, i0, j0, n, m, put)
						continue
					}
					for i := range n {
						for j := range m {
							put(i, j, 1)
						}
					}
				}
			}
		}
	})
	return nil
}

// copyInto writes a matrix into the rows of another from one on.
func (m matrix[T]) copyInto(to matrix[T], from int) {
	for i := range m.rows {
		for j := range m.columns {
			to.data[(from+i)*to.row+j*to.column] = m.data[i*m.row+j]
		}
	}
}

// attentionRows are fused attentions.
var attentionRows = map[*kernel.Kernel]row{
	kernel.Attention:     floats(attend[float32], attend[float64]),
	kernel.AttentionGrad: floats(attendGrad[float32], attendGrad[float64]),

	kernel.AttentionMaskGrad: floats(attendMaskGrad[float32], attendMaskGrad[float64]),
}
