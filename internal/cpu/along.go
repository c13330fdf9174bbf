package cpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// along are the lines of a call's operands along one dimension: all places in the others.
type along struct {
	dim  int
	over *walk // the other dimensions
	step []int // of each operand, along the dimension

}

// along goes over the lines of an operand, whose dimensions the others have too.
func (l *launch) along(operand int) (*along, error) {
	size, d := l.call.T[operand].Size, int(l.call.I[0])
	if d < 0 || d >= size.Len() {
		return nil, fmt.Errorf("there is no dimension %d of operand %s", d, l.call.Kernel.Tensors[operand])
	}
	a := &along{dim: d}
	var strides []tensor.Dims
	for i := range l.call.T {
		t := &l.call.T[i]
		if t.Absent() && t.Size.Len() == 0 {
			strides, a.step = append(strides, tensor.Dims{}), append(a.step, 0)
			continue
		}
		if t.Size.Len() != size.Len() {
			return nil, l.wrongRank(i, size.Len())
		}
		strides, a.step = append(strides, t.Stride.Set(d, 0)), append(a.step, int(t.Stride.At(d)))
	}
	a.over = newWalk(size.Set(d, 1), strides...)
	return a, nil
}

// each calls f for lines: at are the places of the first element in each operand.
func (a *along) each(length int, f func(at []int)) {
	parallel(a.over.total, max(1, grain/max(1, length)), func(from, to int) {
		at := make([]int, len(a.step))
		for n := from; n < to; n++ {
			a.over.place(n, at)
			f(at)
		}
	})
}

// fits fails if an operand is smaller than another in some dimension but one.
func (l *launch) fits(operand, in, but int) error {
	a, b := l.call.T[operand].Size, l.call.T[in].Size
	for d := range min(a.Len(), b.Len()) {
		if d != but && a.At(d) > b.At(d) {
			return fmt.Errorf("operand %s of shape %v does not fit %s of shape %v", l.call.Kernel.Tensors[operand], a, l.call.Kernel.Tensors[in], b)
		}
	}
	return nil
}

// same fails if operands are of different types.
func (l *launch) same(a, b int) error {
	if x, y := l.call.T[a].DType, l.call.T[b].DType; x != y {
		return fmt.Errorf("operand %s is of type %v, not %v", l.call.Kernel.Tensors[b], y, x)
	}
	return nil
}

// whole fails if an index is not int64.
func (l *launch) whole(operand int) error {
	if d := l.call.T[operand].DType; d != tensor.Int64 {
		return fmt.Errorf("operand %s is of type %v, not %v", l.call.Kernel.Tensors[operand], d, tensor.Int64)
	}
	return nil
}

// gatherAlong copies elements as they are, whatever their type.
func gatherAlong(l *launch) error {
	const y, x, index = 0, 1, 2
	a, err := l.along(y)
	if err != nil {
		return err
	}
	if err := first(l.same(y, x), l.whole(index), l.fits(y, x, a.dim), l.shape(index, l.call.T[y].Size.Ints()...)); err != nil || l.call.T[y].Numel() == 0 {
		return err
	}
	bytes, n, limit := int(l.call.T[y].DType.Size()), l.size(y, a.dim), l.size(x, a.dim)
	return l.eachIndex(a, index, n, limit, func(line []int, k, i int) {
		copy(l.data[y][(line[y]+k*a.step[y])*bytes:][:bytes], l.data[x][(line[x]+i*a.step[x])*bytes:])
	})
}

// eachIndex calls f for each element of lines of an index with its line, its place k in it, of
// n, and what it says, counted from 0. Lines have goroutines to themselves.
func (l *launch) eachIndex(a *along, index, n, limit int, f func(line []int, k, i int)) error {
	at := view[int64](l, index)
	var wrong atomic.Pointer[int64]
	a.each(n, func(line []int) {
		for k := range n {
			i := at[line[index]+k*a.step[index]]
			if i < -int64(limit) || i >= int64(limit) {
				wrong.Store(&i)
				continue
			}
			if i < 0 {
				i += int64(limit)
			}
			f(line, k, int(i))
		}
	})
	return outOfRange(wrong.Load(), limit)
}

// scattered calls f for each element of an index with its place in src and in y, in their
// order along the dimension.
func (l *launch) scattered(f func(from, to int)) error {
	const y, index, src = 0, 2, 3
	a, err := l.along(index)
	if err != nil {
		return err
	}
	if err := first(l.whole(index), l.fits(index, y, a.dim)); err != nil {
		return err
	}
	if l.has(src) {
		if err := l.fits(index, src, -1); err != nil {
			return err
		}
	}
	n, limit := l.size(index, a.dim), l.size(y, a.dim)
	return l.eachIndex(a, index, n, limit, func(line []int, k, i int) { f(line[src]+k*a.step[src], line[y]+i*a.step[y]) })
}

func scatterAlong(l *launch) error {
	const y, x, src = 0, 1, 3
	if err := first(l.same(y, x), l.shape(x, l.call.T[y].Size.Ints()...)); err != nil || l.call.T[y].Numel() == 0 {
		return err
	}
	d := l.call.T[y].DType
	bytes := int(d.Size())
	if l.call.T[y].At != l.call.T[x].At {
		if err := copied(newLaunch(&kernel.Call{Kernel: kernel.Copy, T: l.call.T[:2]}, l.data[:2])); err != nil {
			return err
		}
	}
	if !l.has(src) {
		var value [8]byte
		d.Put(value[:], l.call.F[0])
		return l.scattered(func(_, to int) { copy(l.data[y][to*bytes:][:bytes], value[:]) })
	}
	if err := l.same(y, src); err != nil {
		return err
	}
	return l.scattered(func(from, to int) { copy(l.data[y][to*bytes:][:bytes], l.data[src][from*bytes:]) })
}

func scatterAdd[T float](l *launch) error {
	const y, x, src = 0, 1, 3
	if err := l.shape(x, l.call.T[y].Size.Ints()...); err != nil || l.call.T[y].Numel() == 0 {
		return err
	}
	start := &kernel.Call{Kernel: kernel.Fill, T: l.call.T[:1], F: []float64{0}}
	run := filling.run[l.call.T[y].DType]
	if l.has(x) {
		start, run = &kernel.Call{Kernel: kernel.Copy, T: l.call.T[:2]}, copied
	}
	if err := run(newLaunch(start, l.data[:len(start.T)])); err != nil {
		return err
	}
	to, from := view[T](l, y), view[T](l, src)
	return l.scattered(func(i, at int) { to[at] += from[i] })
}

func cumsum(l *launch) error {
	const y, x = 0, 1
	a, err := l.along(y)
	if err != nil {
		return err
	}
	if err := l.shape(x, l.call.T[y].Size.Ints()...); err != nil || l.call.T[y].Numel() == 0 {
		return err
	}
	to, from, n, reverse := l.call.T[y].DType, l.call.T[x].DType, l.size(y, a.dim), l.call.I[1] != 0
	a.each(n, func(line []int) {
		sum, whole := 0.0, int64(0)
		for k := range n {
			if reverse {
				k = n - 1 - k
			}
			put, at := line[y]+k*a.step[y], line[x]+k*a.step[x]
			switch {
			case to.IsFloating():
				sum += l.number(x, at)
				to.Put(l.data[y][int64(put)*to.Size():], sum)
			case from.IsFloating():
				whole += int64(l.number(x, at))
				l.putInteger(y, to, put, whole)
			default:
				whole += l.integer(x, from, at)
				l.putInteger(y, to, put, whole)
			}
		}
	})
	return nil
}

// orderOf compares elements of an operand by their places: a NaN is the largest.
func (l *launch) orderOf(operand int) func(i, j int) int {
	d := l.call.T[operand].DType
	if !d.IsFloating() {
		return func(i, j int) int { return cmp.Compare(l.integer(operand, d, i), l.integer(operand, d, j)) }
	}
	return func(i, j int) int {
		x, y := l.number(operand, i), l.number(operand, j)
		switch xn, yn := math.IsNaN(x), math.IsNaN(y); {
		case xn && yn:
			return 0
		case xn:
			return 1
		case yn:
			return -1
		}
		return cmp.Compare(x, y)
	}
}

func sorted(l *launch) error {
	const y, index, x = 0, 1, 2
	a, err := l.along(x)
	if err != nil {
		return err
	}
	size, k := l.call.T[x].Size.Ints(), l.size(y, a.dim)
	n := size[a.dim]
	size[a.dim] = k
	if err := first(l.same(x, y), l.whole(index), l.shape(y, size...), l.shape(index, size...)); err != nil || l.call.T[y].Numel() == 0 {
		return err
	}
	if k > n {
		return fmt.Errorf("operand y of shape %v does not fit a of shape %v", l.call.T[y].Size, l.call.T[x].Size)
	}
	compare, sign, bytes := l.orderOf(x), 1, int(l.call.T[x].DType.Size())
	if l.call.I[1] != 0 {
		sign = -1
	}
	at := view[int64](l, index)
	a.each(n, func(line []int) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return sign * compare(line[x]+i*a.step[x], line[x]+j*a.step[x]) })
		for i, from := range order[:k] {
			copy(l.data[y][(line[y]+i*a.step[y])*bytes:][:bytes], l.data[x][(line[x]+from*a.step[x])*bytes:])
			at[line[index]+i*a.step[index]] = int64(from)
		}
	})
	return nil
}

func extreme(l *launch) error {
	const y, index, x = 0, 1, 2
	a, err := l.along(x)
	if err != nil {
		return err
	}
	size := l.call.T[x].Size.Ints()
	n := size[a.dim]
	size[a.dim] = 1
	if err := first(l.whole(index), l.shape(y, size...), l.shape(index, size...)); err != nil || l.call.T[index].Numel() == 0 {
		return err
	}
	if l.has(y) {
		if err := l.same(x, y); err != nil {
			return err
		}
	}
	if n == 0 {
		return fmt.Errorf("dimension %d has no elements", a.dim)
	}
	compare, largest, bytes := l.orderOf(x), l.call.I[1] != 0, int(l.call.T[x].DType.Size())
	nan := func(i int) bool { return l.call.T[x].DType.IsFloating() && math.IsNaN(l.number(x, i)) }
	at := view[int64](l, index)
	a.each(n, func(line []int) {
		best := 0
		for i := 1; i < n; i++ {
			from, than := line[x]+i*a.step[x], line[x]+best*a.step[x]
			c := compare(from, than)
			if !largest {
				c = -c
				if nan(from) || nan(than) {
					c = -c
				}
			}
			if c > 0 {
				best = i
			}
		}
		if l.has(y) {
			copy(l.data[y][line[y]*bytes:][:bytes], l.data[x][(line[x]+best*a.step[x])*bytes:])
		}
		at[line[index]] = int64(best)
	})
	return nil
}

func histogram(l *launch) error {
	const y, x = 0, 1
	if l.call.T[y].Size.Len() != 1 || l.call.T[x].Size.Len() != 1 {
		return l.wrongRank(y, 1)
	}
	bins, low, high, d := l.size(y, 0), l.call.F[0], l.call.F[1], l.call.T[y].DType
	if bins == 0 || !(low < high) {
		return fmt.Errorf("%d bins from %v to %v", bins, low, high)
	}
	count := make([]float64, bins)
	for i := range l.size(x, 0) {
		if v := l.number(x, i*l.stride(x, 0)); v >= low && v <= high {
			count[min(int((v-low)/(high-low)*float64(bins)), bins-1)]++
		}
	}
	for i, n := range count {
		d.Put(l.data[y][i*l.stride(y, 0)*int(d.Size()):], n)
	}
	return nil
}

// alongRows go along a dimension.
var alongRows = map[*kernel.Kernel]row{
	kernel.Gather:     everything(0, true, gatherAlong),
	kernel.Scatter:    everything(0, true, scatterAlong),
	kernel.ScatterAdd: floats(scatterAdd[float32], scatterAdd[float64]),
	kernel.Cumsum:     everything(0, true, cumsum),
	kernel.Sort:       everything(0, true, sorted),
	kernel.Extreme:    everything(2, true, extreme),
	kernel.Histogram:  everything(0, true, histogram),
}
