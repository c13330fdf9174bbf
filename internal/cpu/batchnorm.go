package cpu

import (
	"errors"
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// channelGrain is how many channels of n elements are worth a goroutine.
func channelGrain(n int) int { return max(1, grain/4/max(n, 1)) }

// batchNorm is aten/src/ATen/native/Normalization.cpp, batch_norm_cpu_template.
func batchNorm[T float](l *launch) error {
	const y, mean, rstd, x, weight, bias, runMean, runVar = 0, 1, 2, 3, 4, 5, 6, 7
	n, c, s := l.size(x, 0), l.size(x, 1), l.size(x, 2)
	if err := first(l.shape(x, n, c, s), l.shape(y, n, c, s)); err != nil {
		return err
	}
	for _, o := range []int{mean, rstd, weight, bias, runMean, runVar} {
		if err := l.shape(o, c); err != nil {
			return err
		}
	}
	training, momentum, eps := l.call.I[0] != 0, l.call.F[0], l.call.F[1]
	if !training && (!l.has(runMean) || !l.has(runVar)) {
		return errors.New("operands running_mean and running_var are absent, without training")
	}
	count := float64(n * s)
	parallel(c, channelGrain(n*s), func(from, to int) {
		for ch := from; ch < to; ch++ {
			part := func(o int) matrix[T] {
				return block[T](l, o, ch*l.stride(o, 1), n, s, l.stride(o, 0), l.stride(o, 2))
			}
			one := func(o int) matrix[T] { return block[T](l, o, ch*l.stride(o, 0), n, s, 0, 0) }
			rm, rv := one(runMean), one(runVar)
			var m, r float64
			if training {
				if n*s == 0 {
					continue
				}
				var variance float64
				m, r, variance = statistics(part(x), true, eps)
				if rm.data != nil {
					rm.data[0] = T((1-momentum)*rm.get(0, 0, 0) + momentum*m)
				}
				if rv.data != nil {
					rv.data[0] = T((1-momentum)*rv.get(0, 0, 0) + momentum*variance*count/(count-1))
				}
			} else {
				m, r = rm.get(0, 0, 0), 1/math.Sqrt(rv.get(0, 0, 0)+eps)
			}
			put[T](l, mean, ch*l.stride(mean, 0), m)
			put[T](l, rstd, ch*l.stride(rstd, 0), r)
			if n*s > 0 {
				normalize(part(y), part(x), one(weight), one(bias), m, r)
			}
		}
	})
	return nil
}

// batchNormGrad is batch_norm_backward_cpu_template there.
func batchNormGrad[T float](l *launch) error {
	const gx, gweight, gbias, g, x, mean, rstd, weight = 0, 1, 2, 3, 4, 5, 6, 7
	n, c, s := l.size(x, 0), l.size(x, 1), l.size(x, 2)
	if err := first(l.shape(x, n, c, s), l.shape(g, n, c, s), l.shape(gx, n, c, s)); err != nil {
		return err
	}
	for _, o := range []int{mean, rstd, weight, gweight, gbias} {
		if err := l.shape(o, c); err != nil {
			return err
		}
	}
	training := l.call.I[0] != 0
	parallel(c, channelGrain(n*s), func(from, to int) {
		for ch := from; ch < to; ch++ {
			part := func(o int) matrix[T] {
				return block[T](l, o, ch*l.stride(o, 1), n, s, l.stride(o, 0), l.stride(o, 2))
			}
			one := func(o int) matrix[T] { return block[T](l, o, ch*l.stride(o, 0), n, s, 0, 0) }
			m, r := one(mean).get(0, 0, 0), one(rstd).get(0, 0, 0)
			var sum, dot float64
			if n*s > 0 {
				sum, dot = moments(part(g), part(x), matrix[T]{}, m, r)
			}
			put[T](l, gweight, ch*l.stride(gweight, 0), dot)
			put[T](l, gbias, ch*l.stride(gbias, 0), sum)
			if !l.has(gx) || n*s == 0 {
				continue
			}
			w := one(weight).get(0, 0, 1)
			if !training {
				sum, dot = 0, 0
			}
			normalizeGrad(part(gx), part(g), part(x), one(weight), m, r, sum*w, dot*w)
		}
	})
	return nil
}

// batchRows are normalizations over images.
var batchRows = map[*kernel.Kernel]row{
	kernel.BatchNorm:     floats(batchNorm[float32], batchNorm[float64]),
	kernel.BatchNormGrad: floats(batchNormGrad[float32], batchNormGrad[float64]).decidedBy(3),
}
