package cpu

import "github.com/memplan/memplan/internal/kernel"

// groupBlock is the part of an operand [N, G, C/G, S] that is group g of image n.
func groupBlock[T float](l *launch, operand, n, g int) matrix[T] {
	return block[T](l, operand, n*l.stride(operand, 0)+g*l.stride(operand, 1),
		l.size(operand, 2), l.size(operand, 3), l.stride(operand, 2), l.stride(operand, 3))
}

// groupWeight is the part of an operand [G, C/G] that is group g, one number for
// each row of a block.
func groupWeight[T float](l *launch, operand, g int) matrix[T] {
	return block[T](l, operand, g*l.stride(operand, 0), 0, 0, l.stride(operand, 1), 0)
}

// groupNorm is aten/src/ATen/native/cpu/group_norm_kernel.cpp.
func groupNorm[T float](l *launch) error {
	const y, mean, rstd, x, weight, bias = 0, 1, 2, 3, 4, 5
	n, g, c, s := l.size(x, 0), l.size(x, 1), l.size(x, 2), l.size(x, 3)
	err := first(l.shape(x, n, g, c, s), l.shape(y, n, g, c, s), l.shape(mean, n, g), l.shape(rstd, n, g), l.shape(weight, g, c), l.shape(bias, g, c))
	if err != nil || c*s == 0 {
		return err
	}
	parallel(n*g, channelGrain(c*s), func(from, to int) {
		for i := from; i < to; i++ {
			at, group := i/g, i%g
			in := groupBlock[T](l, x, at, group)
			m, r, _ := statistics(in, true, l.call.F[0])
			put[T](l, mean, at*l.stride(mean, 0)+group*l.stride(mean, 1), m)
			put[T](l, rstd, at*l.stride(rstd, 0)+group*l.stride(rstd, 1), r)
			normalize(groupBlock[T](l, y, at, group), in, groupWeight[T](l, weight, group), groupWeight[T](l, bias, group), m, r)
		}
	})
	return nil
}

func groupNormGrad[T float](l *launch) error {
	const gx, gweight, gbias, dy, x, mean, rstd, weight = 0, 1, 2, 3, 4, 5, 6, 7
	n, g, c, s := l.size(x, 0), l.size(x, 1), l.size(x, 2), l.size(x, 3)
	err := first(l.shape(x, n, g, c, s), l.shape(dy, n, g, c, s), l.shape(gx, n, g, c, s), l.shape(mean, n, g), l.shape(rstd, n, g),
		l.shape(weight, g, c), l.shape(gweight, g, c), l.shape(gbias, g, c))
	if err != nil {
		return err
	}
	saved := func(operand, at, group int) float64 {
		return float64(view[T](l, operand)[at*l.stride(operand, 0)+group*l.stride(operand, 1)])
	}
	if l.has(gx) && c*s > 0 {
		parallel(n*g, channelGrain(c*s), func(from, to int) {
			for i := from; i < to; i++ {
				at, group := i/g, i%g
				m, r := saved(mean, at, group), saved(rstd, at, group)
				in, out, w := groupBlock[T](l, x, at, group), groupBlock[T](l, dy, at, group), groupWeight[T](l, weight, group)
				sum, dot := moments(out, in, w, m, r)
				normalizeGrad(groupBlock[T](l, gx, at, group), out, in, w, m, r, sum, dot)
			}
		})
	}
	if !l.has(gweight) && !l.has(gbias) {
		return nil
	}
	parallel(g*c, channelGrain(n*s), func(from, to int) {
		for i := from; i < to; i++ {
			group, ch := i/c, i%c
			var sum, dot float64
			for at := range n {
				if s == 0 {
					break
				}
				in, out := groupBlock[T](l, x, at, group), groupBlock[T](l, dy, at, group)
				a, b := moments(out.only(ch), in.only(ch), matrix[T]{}, saved(mean, at, group), saved(rstd, at, group))
				sum, dot = sum+a, dot+b
			}
			put[T](l, gweight, group*l.stride(gweight, 0)+ch*l.stride(gweight, 1), dot)
			put[T](l, gbias, group*l.stride(gbias, 0)+ch*l.stride(gbias, 1), sum)
		}
	})
	return nil
}

// only is one row of a matrix.
func (m matrix[T]) only(i int) matrix[T] {
	return matrix[T]{m.at(i, 0), 1, m.columns, m.row, m.column}
}

// groupRows are normalizations over groups of channels.
var groupRows = map[*kernel.Kernel]row{
	kernel.GroupNorm:     floats(groupNorm[float32], groupNorm[float64]),
	kernel.GroupNormGrad: floats(groupNormGrad[float32], groupNormGrad[float64]).decidedBy(3),
}
