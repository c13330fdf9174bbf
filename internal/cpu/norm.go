package cpu

import "math"

// Normalizations go over blocks: the elements over which statistics are taken,
// as a matrix. Statistics are accumulated in float64, in two passes.

// lanes is how many sums of a row are made beside each other: sum i is of each
// element whose place in its row is i modulo lanes.
const lanes = 4

// sums are the sums of the lanes, which are added in order.
type sums [lanes]float64

func (s *sums) total() float64 { return s[0] + s[1] + s[2] + s[3] }

// statistics are the mean of a block and the inverse of its deviation; without
// centering the mean is 0 (rms_norm).
func statistics[T float](x matrix[T], center bool, eps float64) (mean, rstd, variance float64) {
	n := float64(x.rows * x.columns)
	if center {
		mean = x.powers(0, 1) / n
	}
	variance = x.powers(mean, 2) / n
	return mean, 1 / math.Sqrt(variance+eps), variance
}

// powers is the sum of what elements are above mean, or (power 2) of its square.
func (m matrix[T]) powers(mean float64, power int) float64 {
	var sum sums
	for i := range m.rows {
		row, j := m.data[i*m.row:], 0
		if m.column == 1 {
			row = row[:m.columns]
			for ; j+lanes <= len(row); j += lanes {
				a, b, c, d := float64(row[j])-mean, float64(row[j+1])-mean, float64(row[j+2])-mean, float64(row[j+3])-mean
				if power == 2 {
					a, b, c, d = a*a, b*b, c*c, d*d
				}
				sum[0] += a
				sum[1] += b
				sum[2] += c
				sum[3] += d
			}
		}
		for ; j < m.columns; j++ {
			v := float64(row[j*m.column]) - mean
			if power == 2 {
				v *= v
			}
			sum[j%lanes] += v
		}
	}
	return sum.total()
}

// get is an element; of no matrix it is what is given.
func (m matrix[T]) get(i, j int, absent float64) float64 {
	if m.data == nil {
		return absent
	}
	return float64(m.data[i*m.row+j*m.column])
}

// factor is what the elements of a row count with: numbers of their own, or one.
type factor[T float] struct {
	row    []T // nil: all is the one
	column int
	one    float64
}

// factorOf is a row of a matrix whose columns are as given or one; absent is that of no matrix.
func (m matrix[T]) factorOf(i int, absent float64) factor[T] {
	if m.data == nil || m.column == 0 {
		return factor[T]{one: m.get(i, 0, absent)}
	}
	return factor[T]{m.data[i*m.row:], m.column, 0}
}

func (f *factor[T]) at(j int) float64 {
	if f.row == nil {
		return f.one
	}
	return float64(f.row[j*f.column])
}

// normalize is y = (x-mean)*rstd*weight + bias.
func normalize[T float](y, x, weight, bias matrix[T], mean, rstd float64) {
	for i := range x.rows {
		from, to, w, b := x.data[i*x.row:], y.data[i*y.row:], weight.factorOf(i, 1), bias.factorOf(i, 0)
		if x.column == 1 && y.column == 1 && w.row == nil && b.row == nil {
			to = to[:x.columns]
			for j, v := range from[:x.columns] {
				to[j] = T((float64(v)-mean)*rstd*w.one + b.one)
			}
			continue
		}
		for j := range x.columns {
			to[j*y.column] = T((float64(from[j*x.column])-mean)*rstd*w.at(j) + b.at(j))
		}
	}
}

// moments are, of a block, the sums of g*weight and of g*weight*(x-mean)*rstd.
func moments[T float](g, x, weight matrix[T], mean, rstd float64) (sum, dot float64) {
	var all, products sums
	for i := range x.rows {
		in, from, w, j := g.data[i*g.row:], x.data[i*x.row:], weight.factorOf(i, 1), 0
		if x.column == 1 && g.column == 1 && w.row == nil {
			in, from = in[:x.columns], from[:x.columns]
			for ; j+lanes <= len(from); j += lanes {
				a, b, c, d := float64(in[j])*w.one, float64(in[j+1])*w.one, float64(in[j+2])*w.one, float64(in[j+3])*w.one
				all[0] += a
				all[1] += b
				all[2] += c
				all[3] += d
				products[0] += a * (float64(from[j]) - mean) * rstd
				products[1] += b * (float64(from[j+1]) - mean) * rstd
				products[2] += c * (float64(from[j+2]) - mean) * rstd
				products[3] += d * (float64(from[j+3]) - mean) * rstd
			}
		}
		for ; j < x.columns; j++ {
			v := float64(in[j*g.column]) * w.at(j)
			all[j%lanes] += v
			products[j%lanes] += v * (float64(from[j*x.column]) - mean) * rstd
		}
	}
	return all.total(), products.total()
}

// normalizeGrad is the gradient of x: what came in, less what the block's own
// statistics take back (layer_norm_backward in
// aten/src/ATen/native/cpu/layer_norm_kernel.cpp). With a sum and a dot of 0 the
// statistics are constants.
func normalizeGrad[T float](gx, g, x, weight matrix[T], mean, rstd, sum, dot float64) {
	n := float64(x.rows * x.columns)
	sum, dot = sum/n, dot/n
	for i := range x.rows {
		to, in, from, w := gx.data[i*gx.row:], g.data[i*g.row:], x.data[i*x.row:], weight.factorOf(i, 1)
		if x.column == 1 && g.column == 1 && gx.column == 1 && w.row == nil {
			to, in = to[:x.columns], in[:x.columns]
			for j, v := range from[:x.columns] {
				to[j] = T((float64(in[j])*w.one - sum - (float64(v)-mean)*rstd*dot) * rstd)
			}
			continue
		}
		for j := range x.columns {
			h := (float64(from[j*x.column]) - mean) * rstd
			to[j*gx.column] = T((float64(in[j*g.column])*w.at(j) - sum - h*dot) * rstd)
		}
	}
}

// block is a matrix over an operand, from a place on, with given strides; one
// that is absent has no data.
func block[T float](l *launch, operand, at, rows, columns, row, column int) matrix[T] {
	data := view[T](l, operand)
	if data != nil {
		data = data[at:]
	}
	return matrix[T]{data, rows, columns, row, column}
}

// put writes an element of an operand that may be absent.
func put[T float](l *launch, operand, at int, v float64) {
	if data := view[T](l, operand); data != nil {
		data[at] = T(v)
	}
}
