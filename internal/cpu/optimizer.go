package cpu

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// operandAt is the part of an operand from a place on; nil if it is absent.
func operandAt[T float](l *launch, operand, at int) []T {
	if data := view[T](l, operand); data != nil {
		return data[at:]
	}
	return nil
}

// sgd is _single_tensor_sgd in torch/optim/sgd.py.
func sgd[T float](l *launch) error {
	first, nesterov, sign := l.call.I[0] == 1, l.call.I[1] != 0, direction(l.call.I[2])
	lr, momentum, dampening, decay := l.call.F[0], l.call.F[1], l.call.F[2], l.call.F[3]
	l.over().each(func(at []int, n int, step []int) {
		p, buf, grad := operandAt[T](l, 0, at[0]), operandAt[T](l, 1, at[1]), operandAt[T](l, 2, at[2])
		if buf != nil && !first && !nesterov && step[0] == 1 && step[1] == 1 && step[2] == 1 {
			buf, grad = buf[:n], grad[:n]
			for i, v := range p[:n] {
				b := momentum*float64(buf[i]) + (1-dampening)*(sign*float64(grad[i])+decay*float64(v))
				buf[i], p[i] = T(b), T(float64(v)-lr*b)
			}
			return
		}
		for i := range n {
			w := float64(p[i*step[0]])
			g := sign*float64(grad[i*step[2]]) + decay*w
			if buf != nil {
				b := g
				if !first {
					b = momentum*float64(buf[i*step[1]]) + (1-dampening)*g
				}
				buf[i*step[1]] = T(b)
				if nesterov {
					g += momentum * b
				} else {
					g = b
				}
			}
			p[i*step[0]] = T(w - lr*g)
		}
	})
	return nil
}

// direction is -1 for an optimizer that maximizes.
func direction(maximize int64) float64 {
	if maximize != 0 {
		return -1
	}
	return 1
}

// adam is _single_tensor_adam in torch/optim/adam.py, and AdamW.
func adam[T float](l *launch) error {
	steps, decoupled, sign := l.call.I[0], l.call.I[1] != 0, direction(l.call.I[2])
	lr, beta1, beta2, eps, decay := l.call.F[0], l.call.F[1], l.call.F[2], l.call.F[3], l.call.F[4]
	size, root := lr/(1-math.Pow(beta1, float64(steps))), math.Sqrt(1-math.Pow(beta2, float64(steps)))
	l.over().each(func(at []int, n int, step []int) {
		p, ms, vs, most, grad := operandAt[T](l, 0, at[0]), operandAt[T](l, 1, at[1]), operandAt[T](l, 2, at[2]), operandAt[T](l, 3, at[3]), operandAt[T](l, 4, at[4])
		for i := range n {
			w, g := float64(p[i*step[0]]), sign*float64(grad[i*step[4]])
			if decoupled {
				w *= 1 - lr*decay
			} else {
				g += decay * w
			}
			m, v := (1-beta1)*g, (1-beta2)*g*g
			if steps > 1 {
				m += beta1 * float64(ms[i*step[1]])
				v += beta2 * float64(vs[i*step[2]])
			}
			ms[i*step[1]], vs[i*step[2]] = T(m), T(v)
			if most != nil {
				if steps > 1 {
					v = max(v, float64(most[i*step[3]]))
				}
				most[i*step[3]] = T(v)
			}
			p[i*step[0]] = T(w - size*m/(math.Sqrt(v)/root+eps))
		}
	})
	return nil
}

// optimizerRows are steps of optimizers.
var optimizerRows = map[*kernel.Kernel]row{
	kernel.SGD:  floats(sgd[float32], sgd[float64]),
	kernel.Adam: floats(adam[float32], adam[float64]),
}
