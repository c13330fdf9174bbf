package cpu

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// layerOperands are the places of the operands of a kernel in its call; -1 where
// it has none.
type layerOperands struct{ y, mean, rstd, x, weight, bias, gweight, gbias, g int }

var (
	layerForward  = layerOperands{y: 0, mean: 1, rstd: 2, x: 3, weight: 4, bias: 5}
	rmsForward    = layerOperands{y: 0, mean: -1, rstd: 1, x: 2, weight: 3, bias: -1}
	layerBackward = layerOperands{y: 0, gweight: 1, gbias: 2, g: 3, x: 4, mean: 5, rstd: 6, weight: 7}
	rmsBackward   = layerOperands{y: 0, gweight: 1, gbias: -1, g: 2, x: 3, mean: -1, rstd: 4, weight: 5}
)

// layerSizes are the dimensions in front and the length of a row.
func (l *launch) layerSizes(o layerOperands) (lead tensor.Dims, n int, err error) {
	x := l.call.T[o.x].Size
	if x.Len() == 0 {
		return lead, 0, l.wrongRank(o.x, 1)
	}
	lead, n = x.Remove(x.Len()-1), int(x.At(-1))
	whole, front := ints(x), ints(lead)
	err = first(l.shape(o.rstd, front...), l.shape(o.weight, n))
	if o.mean >= 0 {
		err = first(err, l.shape(o.mean, front...))
	}
	return lead, n, first(err, l.shapeIfThere(o.y, whole...))
}

func ints(d tensor.Dims) []int {
	out := make([]int, d.Len())
	for i := range out {
		out[i] = int(d.At(i))
	}
	return out
}

// shapeIfThere is shape for an operand that may be absent.
func (l *launch) shapeIfThere(operand int, want ...int) error {
	if operand < 0 || !l.has(operand) {
		return nil
	}
	return l.shape(operand, want...)
}

// columnStride is the stride of the last dimension of an operand.
func (l *launch) columnStride(operand int) int {
	n := l.call.T[operand].Stride.Len()
	if n == 0 {
		return 0
	}
	return l.stride(operand, n-1)
}

// vector is an operand of n numbers as a row; without data if it is absent.
func vector[T float](l *launch, operand, n int) matrix[T] {
	if operand < 0 {
		return matrix[T]{}
	}
	return block[T](l, operand, 0, 1, n, 0, l.columnStride(operand))
}

func layerNorm[T float](o layerOperands) runner {
	return func(l *launch) error {
		lead, n, err := l.layerSizes(o)
		if err = first(err, l.shapeIfThere(o.bias, n)); err != nil || n == 0 {
			return err
		}
		operands := []int{o.y, o.rstd, o.x}
		if o.mean >= 0 {
			operands = append(operands, o.mean)
		}
		weight, bias := vector[T](l, o.weight, n), vector[T](l, o.bias, n)
		l.linesOf(lead, operands, func(at []int) {
			x := block[T](l, o.x, at[o.x], 1, n, 0, l.columnStride(o.x))
			mean, rstd, _ := statistics(x, o.mean >= 0, l.call.F[0])
			if o.mean >= 0 {
				put[T](l, o.mean, at[o.mean], mean)
			}
			put[T](l, o.rstd, at[o.rstd], rstd)
			normalize(block[T](l, o.y, at[o.y], 1, n, 0, l.columnStride(o.y)), x, weight, bias, mean, rstd)
		})
		return nil
	}
}

// layerColumns is how many gradients of weights are summed together.
const layerColumns = 64

func layerNormGrad[T float](o layerOperands) runner {
	return func(l *launch) error {
		lead, n, err := l.layerSizes(o)
		err = first(err, l.shape(o.g, ints(l.call.T[o.x].Size)...), l.shapeIfThere(o.gweight, n), l.shapeIfThere(o.gbias, n))
		if err != nil || n == 0 {
			return err
		}
		saved := func(at []int) (mean, rstd float64) {
			if o.mean >= 0 {
				mean = float64(view[T](l, o.mean)[at[o.mean]])
			}
			return mean, float64(view[T](l, o.rstd)[at[o.rstd]])
		}
		weight := vector[T](l, o.weight, n)
		row := func(operand int, at []int) matrix[T] {
			return block[T](l, operand, at[operand], 1, n, 0, l.columnStride(operand))
		}
		operands := []int{o.g, o.x, o.rstd}
		if o.mean >= 0 {
			operands = append(operands, o.mean)
		}
		if l.has(o.y) {
			l.linesOf(lead, append(operands, o.y), func(at []int) {
				g, x := row(o.g, at), row(o.x, at)
				mean, rstd := saved(at)
				sum, dot := moments(g, x, weight, mean, rstd)
				if o.mean < 0 {
					sum = 0
				}
				normalizeGrad(row(o.y, at), g, x, weight, mean, rstd, sum, dot)
			})
		}
		if !l.has(o.gweight) && (o.gbias < 0 || !l.has(o.gbias)) {
			return nil
		}
		strides := make([]tensor.Dims, len(l.call.T))
		for _, i := range operands {
			strides[i] = l.call.T[i].Stride
			if strides[i].Len() > lead.Len() {
				strides[i] = strides[i].Remove(lead.Len())
			}
		}
		rows := newWalk(lead, strides...)
		gweight, gbias := vector[T](l, o.gweight, n), vector[T](l, o.gbias, n)
		parallel(n, layerColumns, func(from, to int) {
			var dot, sum [layerColumns]float64
			at := make([]int, len(strides))
			for r := range rows.total {
				rows.place(r, at)
				g, x := row(o.g, at), row(o.x, at)
				mean, rstd := saved(at)
				for j := from; j < to; j++ {
					v := g.get(0, j, 0)
					dot[j-from] += v * (x.get(0, j, 0) - mean) * rstd
					sum[j-from] += v
				}
			}
			for j := from; j < to; j++ {
				if gweight.data != nil {
					gweight.data[j*gweight.column] = T(dot[j-from])
				}
				if gbias.data != nil {
					gbias.data[j*gbias.column] = T(sum[j-from])
				}
			}
		})
		return nil
	}
}

// layerRows are normalizations over the last dimension.
var layerRows = map[*kernel.Kernel]row{
	kernel.LayerNorm:     floats(layerNorm[float32](layerForward), layerNorm[float64](layerForward)),
	kernel.RMSNorm:       floats(layerNorm[float32](rmsForward), layerNorm[float64](rmsForward)),
	kernel.LayerNormGrad: floats(layerNormGrad[float32](layerBackward), layerNormGrad[float64](layerBackward)).decidedBy(layerBackward.g),
	kernel.RMSNormGrad:   floats(layerNormGrad[float32](rmsBackward), layerNormGrad[float64](rmsBackward)).decidedBy(rmsBackward.g),
}
