package cpu

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// The order of a sum is fixed: the reduced elements are taken in chunks of
// reduceChunk, those of a chunk one after the other, and then the chunks' sums.
// Only whether the sums of a chunk are made beside each other depends on the
// machine.
const reduceChunk = 1 << 12

// reduceBlock is how many results that lie side by side are summed together.
const reduceBlock = 128

// reduction is one of a or of a and b: acc(sum, a, b).
type reduction struct {
	start float64
	add   func(acc, a, b float64) float64
	join  func(x, y float64) float64 // of the sums of two chunks
	last  func(v float64) float64    // of the whole sum; nil: it is the result
}

func plus(x, y float64) float64 { return x + y }

// aten/src/ATen/native/cpu/SumKernel.cpp, ReduceOpsKernel.cpp,
// aten/src/ATen/native/Loss.cpp
var (
	sum     = reduction{0, func(acc, a, _ float64) float64 { return acc + a }, plus, nil}
	norm    = reduction{0, func(acc, a, _ float64) float64 { return acc + a*a }, plus, math.Sqrt}
	largest = reduction{math.Inf(-1), func(acc, a, _ float64) float64 { return max(acc, a) }, func(x, y float64) float64 { return max(x, y) }, nil}
	least   = reduction{math.Inf(1), func(acc, a, _ float64) float64 { return min(acc, a) }, func(x, y float64) float64 { return min(x, y) }, nil}
	mse     = reduction{0, func(acc, a, b float64) float64 { return acc + (a-b)*(a-b) }, plus, nil}
	l1      = reduction{0, func(acc, a, b float64) float64 { return acc + math.Abs(a-b) }, plus, nil}
	bce     = reduction{0, func(acc, a, b float64) float64 { return acc + max(a, 0) - a*b + logOnePlusExp(a) }, plus, nil}
	entropy = reduction{0, func(acc, a, b float64) float64 {
		return acc - b*max(math.Log(a), -100) - (1-b)*max(math.Log1p(-a), -100)
	}, plus, nil}
)

// reduceRows are reductions.
var reduceRows = map[*kernel.Kernel]row{
	kernel.Sum:  withWhole(floats(reduce[float32, float32](sum), reduce[float64, float64](sum)), 0, func(x, y int64) int64 { return x + y }),
	kernel.Max:  withWhole(floats(reduce[float32, float32](largest), reduce[float64, float64](largest)), math.MinInt64, func(x, y int64) int64 { return max(x, y) }),
	kernel.Min:  withWhole(floats(reduce[float32, float32](least), reduce[float64, float64](least)), math.MaxInt64, func(x, y int64) int64 { return min(x, y) }),
	kernel.Norm: norms(),
	kernel.MSE:  floats(reduce[float32, float32](mse), reduce[float64, float64](mse)),
	kernel.L1:   floats(reduce[float32, float32](l1), reduce[float64, float64](l1)),
	kernel.BCE:  floats(reduce[float32, float32](bce), reduce[float64, float64](bce)),

	kernel.Entropy: floats(reduce[float32, float32](entropy), reduce[float64, float64](entropy)),
}

// withWhole adds whole numbers of any type, and bools, to a row; results may be of another type.
func withWhole(r row, start int64, add func(x, y int64) int64) row {
	for _, d := range append(integers[:len(integers):len(integers)], tensor.Bool) {
		r.run[d] = reduceIntegers(start, add)
	}
	r.wholes = true
	return r
}

// norms is norm, whose operand may be of another type than the result.
func norms() row {
	mixed := func(same tensor.DType, run, other runner) runner {
		return func(l *launch) error {
			switch d := l.call.T[1].DType; {
			case d == same:
				return run(l)
			case d == tensor.Float32 || d == tensor.Float64:
				return other(l)
			}
			return l.converted(1, tensor.Float32, mixedNorm(same))
		}
	}
	r := floats(
		mixed(tensor.Float32, reduce[float32, float32](norm), reduce[float32, float64](norm)),
		mixed(tensor.Float64, reduce[float64, float64](norm), reduce[float64, float32](norm)))
	r.mixed = true
	return r
}

// mixedNorm is the norm of float32.
func mixedNorm(result tensor.DType) runner {
	if result == tensor.Float64 {
		return reduce[float64, float32](norm)
	}
	return reduce[float32, float32](norm)
}

// converted runs with an operand in another type.
func (l *launch) converted(operand int, d tensor.DType, run runner) error {
	t := l.call.T[operand]
	c := tensor.Contiguous(t.Size)
	to := kernel.Tensor{At: t.At, DType: d, Size: t.Size, Stride: c.Stride}
	data := aligned(tensor.Bytes(t.Numel() * d.Size()))
	if err := convert(newLaunch(&kernel.Call{Kernel: kernel.Copy, T: []kernel.Tensor{to, t}}, [][]byte{data, l.data[operand]})); err != nil {
		return err
	}
	call := *l.call
	call.T = append([]kernel.Tensor(nil), call.T...)
	call.T[operand] = to
	all := append([][]byte(nil), l.data...)
	all[operand] = data
	return run(newLaunch(&call, all))
}

// plan splits the dimensions of a reduction: those that stay and those that are
// reduced, each with the strides of the result and the operands. The innermost
// one that stays is given apart.
type plan struct {
	kept, reduced *walk
	side          int   // elements of the innermost dimension that stays
	sideStep      []int // and its strides
}

func (l *launch) reductionPlan() plan {
	t := l.call.T
	var keep, drop []int
	for d := range t[0].Size.Len() {
		if t[0].Stride.At(d) == 0 {
			drop = append(drop, d)
		} else {
			keep = append(keep, d)
		}
	}
	pick := func(dims []int, from int) *walk { // ways over some dimensions, ordered by the operand `from`
		var size tensor.Dims
		strides := make([]tensor.Dims, len(t))
		for _, d := range dims {
			size = size.Append(t[0].Size.At(d))
			for o := range t {
				strides[o] = strides[o].Append(t[(o+from)%len(t)].Stride.At(d))
			}
		}
		w := newWalk(size, strides...)
		for _, s := range w.stride {
			rotate(s, from)
		}
		return w
	}
	p := plan{kept: pick(keep, 1), reduced: pick(drop, 1)}
	inner := len(p.kept.size) - 1
	p.side, p.sideStep = p.kept.size[inner], p.kept.stride[inner]
	return p
}

// rotate moves elements to where those of operands were before they were taken
// from another one on.
func rotate(s []int, from int) {
	old := append([]int(nil), s...)
	for i, v := range old {
		s[(i+from)%len(s)] = v
	}
}

// place is where element n of a walk is in each operand.
func (w *walk) place(n int, at []int) {
	clear(at)
	for d := len(w.size) - 1; d >= 0; d-- {
		i := n % w.size[d]
		n /= w.size[d]
		for o, s := range w.stride[d] {
			at[o] += i * s
		}
	}
}

// reduce is a kernel of a reduction of A into Y.
func reduce[Y, A float](r reduction) runner {
	return func(l *launch) error {
		y, a, scale := view[Y](l, 0), view[A](l, 1), 1.0
		if len(l.call.F) > 0 {
			scale = l.call.F[0]
		}
		var b []A
		if len(l.call.T) > 2 {
			b = view[A](l, 2)
		}
		p := l.reductionPlan()
		if p.kept.total == 0 {
			return nil
		}
		chunks := max(1, (p.reduced.total+reduceChunk-1)/reduceChunk)
		blocks := (p.side + reduceBlock - 1) / reduceBlock
		outer := p.kept.total / p.side
		sums := func(at []int, n, chunk int, acc []float64) { // of n results from a place on, of one chunk
			for j := range n {
				acc[j] = r.start
			}
			from, to := chunk*reduceChunk, min((chunk+1)*reduceChunk, p.reduced.total)
			sumChunk(&p, r.add, a, b, at, acc[:n], from, to)
		}
		tasks := outer * blocks
		write := func(at []int, acc []float64) {
			for j, v := range acc {
				if r.last != nil {
					v = r.last(v)
				}
				y[at[0]+j*p.sideStep[0]] = Y(v * scale)
			}
		}
		locate := func(task int, at []int) int {
			p.kept.place(task/blocks*p.side+task%blocks*reduceBlock, at)
			return min(reduceBlock, p.side-task%blocks*reduceBlock)
		}
		if tasks > 1 || chunks == 1 {
			worth := max(1, grain/max(1, p.reduced.total*min(p.side, reduceBlock)))
			parallel(tasks, worth, func(from, to int) {
				at, acc, part := make([]int, len(l.call.T)), make([]float64, reduceBlock), make([]float64, reduceBlock)
				for task := from; task < to; task++ {
					n := locate(task, at)
					sums(at, n, 0, acc)
					for c := 1; c < chunks; c++ {
						sums(at, n, c, part)
						for j := range n {
							acc[j] = r.join(acc[j], part[j])
						}
					}
					write(at, acc[:n])
				}
			})
			return nil
		}
		at := make([]int, len(l.call.T))
		n := locate(0, at)
		parts := make([]float64, chunks*n)
		parallel(chunks, 1, func(from, to int) {
			for c := from; c < to; c++ {
				sums(at, n, c, parts[c*n:(c+1)*n])
			}
		})
		acc := parts[:n]
		for c := 1; c < chunks; c++ {
			for j := range acc {
				acc[j] = r.join(acc[j], parts[c*n+j])
			}
		}
		write(at, acc)
		return nil
	}
}

// sumChunk adds the elements from .. to of the reduced dimensions to the sums
// of results side by side.
func sumChunk[A float](p *plan, add func(acc, a, b float64) float64, a, b []A, at []int, acc []float64, from, to int) {
	w := p.reduced
	inner := len(w.size) - 1
	where := make([]int, len(at))
	sa, ra, sb, rb := p.sideStep[1], w.stride[inner][1], 0, 0
	if b != nil {
		sb, rb = p.sideStep[2], w.stride[inner][2]
	}
	for from < to {
		w.place(from, where)
		n := min(w.size[inner]-from%w.size[inner], to-from)
		for o := range where {
			where[o] += at[o]
		}
		from += n
		a := a[where[1]:]
		if b == nil {
			if len(acc) == 1 {
				s := acc[0]
				for i := range n {
					s = add(s, float64(a[i*ra]), 0)
				}
				acc[0] = s
				continue
			}
			for i := range n {
				row := a[i*ra:]
				for j := range acc {
					acc[j] = add(acc[j], float64(row[j*sa]), 0)
				}
			}
			continue
		}
		b := b[where[2]:]
		for i := range n {
			for j := range acc {
				acc[j] = add(acc[j], float64(a[i*ra+j*sa]), float64(b[i*rb+j*sb]))
			}
		}
	}
}

// reduceIntegers reduces whole numbers.
func reduceIntegers(start int64, add func(x, y int64) int64) runner {
	return func(l *launch) error {
		whole, err := l.wholeNumbers()
		if err != nil {
			return err
		}
		scale := int64(1)
		if len(whole) > 0 {
			scale = whole[0]
		}
		p := l.reductionPlan()
		y, a := l.call.T[0].DType, l.call.T[1].DType
		parallel(p.kept.total, 64, func(from, to int) {
			at, where := make([]int, len(l.call.T)), make([]int, len(l.call.T))
			for n := from; n < to; n++ {
				p.kept.place(n, at)
				s := start
				for i := range p.reduced.total {
					p.reduced.place(i, where)
					s = add(s, l.integer(1, a, at[1]+where[1]))
				}
				l.putInteger(0, y, at[0], s*scale)
			}
		})
		return nil
	}
}
