package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/optim"
)

// The optimizers of bitsandbytes, as its kernels compute them (csrc/kernels.cu:
// kOptimizer32bit1State, kOptimizer32bit2State, kOptimizerStatic8bit1StateBlockwise
// and 2StateBlockwise): states of 8 bits are dequantized, updated and quantized
// block by block. Those in managed memory are kept in the machine's.

// eightBit is a step of Adam, or with one state of Lion.
func eightBit(x *Executor, h hyper, p *optim.Param) error {
	return x.aside(func(a *aside) {
		n, quantized, block := h.o.Row.EightBit(h.o.Args, p.T.Numel())
		w, g := a.get(p.T).v, a.get(p.Grad).v
		maps := [][]float64{dynamicMap(true), dynamicMap(false)}
		states := make([][]float64, n)
		for i := range states {
			stored := a.stored(p, i, len(w))
			switch {
			case p.Steps == 1:
				states[i] = make([]float64, len(w))
			case quantized:
				states[i] = dequantized8(stored, maps[i], a.stored(p, n+i, (len(w)+block-1)/block), block)
			default:
				states[i] = stored
			}
		}
		if n == 1 {
			lionStep(h, w, g, states[0])
		} else {
			adamStep(h, float64(p.Steps), w, g, states[0], states[1])
		}
		for i, s := range states {
			if quantized {
				indices, scales := quantized8(s, maps[i], block)
				a.store(p, n+i, scales)
				s = indices
			}
			a.store(p, i, s)
		}
		a.put(p.T, w)
	})
}

func adamStep(h hyper, step float64, w, g, m, v []float64) {
	beta1, beta2 := h.pair("betas")
	lr, root := h.float("lr"), math.Sqrt(1-math.Pow(beta2, step))
	size := lr * root / (1 - math.Pow(beta1, step))
	for i := range w {
		m[i] = beta1*m[i] + (1-beta1)*g[i]
		v[i] = beta2*v[i] + (1-beta2)*g[i]*g[i]
		w[i] -= size * m[i] / (math.Sqrt(v[i]) + root*h.float("eps"))
		w[i] *= 1 - lr*h.float("weight_decay")
	}
}

func lionStep(h hyper, w, g, m []float64) {
	beta1, beta2 := h.pair("betas")
	lr := h.float("lr")
	for i := range w {
		w[i] *= 1 - lr*h.float("weight_decay")
		switch d := beta1*m[i] + (1-beta1)*g[i]; {
		case d > 0:
			w[i] -= lr
		case d < 0:
			w[i] += lr
		}
		m[i] = beta2*m[i] + (1-beta2)*g[i]
	}
}

// stored are the numbers of a state, or of its scales; store keeps them.
func (a *aside) stored(p *optim.Param, i, n int) []float64 {
	switch {
	case p.Steps == 1 || i >= len(p.Quantized):
		return make([]float64, n)
	case p.Quantized[i] == nil:
		return a.x.managed[p][i]
	}
	return a.get(p.Quantized[i]).v
}

func (a *aside) store(p *optim.Param, i int, v []float64) {
	if t := p.Quantized[i]; t != nil {
		a.put(t, v)
		return
	}
	if a.x.managed == nil {
		a.x.managed = map[*optim.Param][][]float64{}
	}
	if a.x.managed[p] == nil {
		a.x.managed[p] = make([][]float64, len(p.Quantized))
	}
	a.x.managed[p][i] = v
}
