package cpu

import "math"

// Normalizations go over blocks: the elements over which statistics are taken,
// as a matrix. Statistics are accumulated in float64, in two passes.

// statistics are the mean of a block and the inverse of its deviation; without
// centering the mean is 0 (rms_norm).
func statistics[T float](x matrix[T], center bool, eps float64) (mean, rstd, variance float64) {
	n := float64(x.rows * x.columns)
	if center {
		x.each(func(v float64) { mean += v })
		mean /= n
	}
	x.each(func(v float64) { variance += (v - mean) * (v - mean) })
	variance /= n
	return mean, 1 / math.Sqrt(variance+eps), variance
}

// each calls f for all elements, row by row.
func (m matrix[T]) each(f func(v float64)) {
	for i := range m.rows {
		row := m.data[i*m.row:]
		for j := range m.columns {
			f(float64(row[j*m.column]))
		}
	}
}

// get is an element; of no matrix it is what is given.
func (m matrix[T]) get(i, j int, absent float64) float64 {
	if m.data == nil {
		return absent
	}
	return float64(m.data[i*m.row+j*m.column])
}

// normalize is y = (x-mean)*rstd*weight + bias.
func normalize[T float](y, x, weight, bias matrix[T], mean, rstd float64) {
	for i := range x.rows {
		for j := range x.columns {
			v := (x.get(i, j, 0) - mean) * rstd * weight.get(i, j, 1)
			y.data[i*y.row+j*y.column] = T(v + bias.get(i, j, 0))
		}
	}
}

// moments are, of a block, the sums of g*weight and of g*weight*(x-mean)*rstd.
func moments[T float](g, x, weight matrix[T], mean, rstd float64) (sum, dot float64) {
	for i := range x.rows {
		for j := range x.columns {
			v := g.get(i, j, 0) * weight.get(i, j, 1)
			sum += v
			dot += v * (x.get(i, j, 0) - mean) * rstd
		}
	}
	return sum, dot
}

// normalizeGrad is the gradient of x: what came in, less what the block's own
// statistics take back (layer_norm_backward in
// aten/src/ATen/native/cpu/layer_norm_kernel.cpp). With a sum and a dot of 0 the
// statistics are constants.
func normalizeGrad[T float](gx, g, x, weight matrix[T], mean, rstd, sum, dot float64) {
	n := float64(x.rows * x.columns)
	for i := range x.rows {
		for j := range x.columns {
			h := (x.get(i, j, 0) - mean) * rstd
			v := g.get(i, j, 0)*weight.get(i, j, 1) - sum/n - h*dot/n
			gx.data[i*gx.row+j*gx.column] = T(v * rstd)
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
