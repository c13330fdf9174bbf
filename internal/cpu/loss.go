package cpu

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
)

// targets calls f for the targets [N, S] in order, with their class and weight;
// those that are ignored have a class of -1.
func targets[T float](l *launch, target, weight, classes int, f func(n, s, class int, w float64)) error {
	t, w, ignored := view[int64](l, target), view[T](l, weight), l.call.I[1]
	for n := range l.size(target, 0) {
		for s := range l.size(target, 1) {
			class := t[n*l.stride(target, 0)+s*l.stride(target, 1)]
			switch {
			case class == ignored:
				f(n, s, -1, 0)
			case class < 0 || class >= int64(classes):
				return fmt.Errorf("target %d is out of range [0, %d)", class, classes)
			case w == nil:
				f(n, s, int(class), 1)
			default:
				f(n, s, int(class), float64(w[int(class)*l.stride(weight, 0)]))
			}
		}
	}
	return nil
}

// lossSizes checks the operands of a loss over classes.
func (l *launch) lossSizes(x, y, total, target, weight int) (n, c, s int, err error) {
	n, c, s = l.size(x, 0), l.size(x, 1), l.size(x, 2)
	err = first(l.shape(x, n, c, s), l.shape(target, n, s), l.shape(total, 1), l.shape(weight, c))
	if l.call.I[0] == kernel.ReduceNone {
		return n, c, s, first(err, l.shape(y, n, s))
	}
	if l.call.T[y].Numel() != 1 {
		err = first(err, l.shape(y, 1, 1))
	}
	return n, c, s, err
}

// nllLoss is aten/src/ATen/native/LossNLL.cpp.
func nllLoss[T float](l *launch) error {
	const y, total, x, target, weight = 0, 1, 2, 3, 4
	_, c, _, err := l.lossSizes(x, y, total, target, weight)
	if err != nil {
		return err
	}
	in, reduction := view[T](l, x), l.call.I[0]
	sum, all := 0.0, 0.0
	err = targets[T](l, target, weight, c, func(n, s, class int, w float64) {
		v := 0.0
		if class >= 0 {
			v = -w * float64(in[n*l.stride(x, 0)+class*l.stride(x, 1)+s*l.stride(x, 2)])
			all += w
		}
		if reduction == kernel.ReduceNone {
			put[T](l, y, n*l.stride(y, 0)+s*l.stride(y, 1), v)
		} else {
			sum += v
		}
	})
	if reduction == kernel.ReduceMean {
		sum /= all
	}
	if reduction != kernel.ReduceNone {
		put[T](l, y, 0, sum)
	}
	put[T](l, total, 0, all)
	return err
}

func nllLossGrad[T float](l *launch) error {
	const gx, g, target, weight, total = 0, 1, 2, 3, 4
	_, c, _, err := l.lossSizes(gx, g, total, target, weight)
	if err != nil || l.call.T[gx].Numel() == 0 {
		return err
	}
	out, in, reduction := view[T](l, gx), view[T](l, g), l.call.I[0]
	if err := fill0(l, gx); err != nil {
		return err
	}
	return targets[T](l, target, weight, c, func(n, s, class int, w float64) {
		if class < 0 {
			return
		}
		v := -w
		switch reduction {
		case kernel.ReduceNone:
			v *= float64(in[n*l.stride(g, 0)+s*l.stride(g, 1)])
		case kernel.ReduceMean:
			v *= float64(in[0]) / float64(view[T](l, total)[0])
		default:
			v *= float64(in[0])
		}
		out[n*l.stride(gx, 0)+class*l.stride(gx, 1)+s*l.stride(gx, 2)] = T(v)
	})
}

// fill0 fills an operand with zeros.
func fill0(l *launch, operand int) error {
	t := l.call.T[operand]
	c := &kernel.Call{Kernel: kernel.Fill, T: []kernel.Tensor{t}, F: []float64{0}}
	return filling.run[t.DType](newLaunch(c, [][]byte{l.data[operand]}))
}

// lossRows are losses over classes.
var lossRows = map[*kernel.Kernel]row{
	kernel.NLLLoss:     floats(nllLoss[float32], nllLoss[float64]),
	kernel.NLLLossGrad: floats(nllLossGrad[float32], nllLossGrad[float64]),
}
