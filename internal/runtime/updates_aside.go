package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
)

// Optimizers whose steps are more than functions of single elements, such as norms
// of a whole parameter, are computed aside.

// asideStep is a step that reads the parameter, its gradient and its states, and
// changes parameter and states.
func asideStep(f func(h hyper, s *stepAside)) func(x *Executor, h hyper, p *optim.Param) error {
	return func(x *Executor, h hyper, p *optim.Param) error {
		return x.aside(func(a *aside) {
			s := &stepAside{step: float64(p.Steps), size: ints(p.T.Size), p: a.get(p.T).v, g: a.get(p.Grad).v, dtype: p.T.DType}
			for _, t := range p.State {
				v := a.get(t)
				if p.Steps == 1 && v != nil {
					clear(v.v)
				}
				if v == nil {
					v = &array{}
				}
				s.states = append(s.states, v.v)
			}
			if h.has("maximize") && h.flag("maximize") == 1 {
				for i := range s.g {
					s.g[i] = -s.g[i]
				}
			}
			f(h, s)
			a.put(p.T, s.p)
			for i, t := range p.State {
				a.put(t, s.states[i])
			}
		})
	}
}

// stepAside is what a step works on.
type stepAside struct {
	step   float64
	size   []int
	dtype  tensor.DType
	p, g   []float64
	states [][]float64
}

// norm is the 2-norm of a vector.
func norm(v []float64) float64 {
	sum := 0.0
	for _, f := range v {
		sum += f * f
	}
	return math.Sqrt(sum)
}

// rms is the root mean square.
func rms(v []float64) float64 { return norm(v) / math.Sqrt(float64(len(v))) }

// lerp moves a towards f.
func lerp(a []float64, weight float64, f func(i int) float64) {
	for i := range a {
		a[i] += weight * (f(i) - a[i])
	}
}

// matrices sees a gradient as matrices over its last two dimensions: f gets the
// place of the first element of each, and its sizes.
func (s *stepAside) matrices(f func(k, at, rows, columns int)) {
	n := len(s.size)
	rows, columns := s.size[n-2], s.size[n-1]
	for k := range numel(s.size[:n-2]) {
		f(k, k*rows*columns, rows, columns)
	}
}

// meanSquares are the means of (g² + eps) over the columns and over the rows of each
// matrix.
func (s *stepAside) meanSquares(eps float64) (row, column []float64) {
	s.matrices(func(_, at, rows, columns int) {
		r, c := make([]float64, rows), make([]float64, columns)
		for i := range rows {
			for j := range columns {
				g := s.g[at+i*columns+j]
				v := g*g + eps
				r[i] += v / float64(columns)
				c[j] += v / float64(rows)
			}
		}
		row, column = append(row, r...), append(column, c...)
	})
	return row, column
}

// outer makes of states of rows and columns what they say of each element, the mean
// of the rows at least least.
func (s *stepAside) outer(row, column []float64, least float64) []float64 {
	out := make([]float64, len(s.g))
	s.matrices(func(k, at, rows, columns int) {
		r, c := row[k*rows:][:rows], column[k*columns:][:columns]
		mean := 0.0
		for _, v := range r {
			mean += v / float64(rows)
		}
		mean = max(mean, least)
		for i := range rows {
			for j := range columns {
				out[at+i*columns+j] = r[i] * c[j] / mean
			}
		}
	})
	return out
}

// adafactor is _single_tensor_adafactor in torch/optim/_adafactor.py.
func adafactor(h hyper, s *stepAside) {
	eps1, eps2 := s.dtype.Epsilon(), 1e-3
	if v, ok := h.value("eps").([]float64); ok {
		eps1, eps2 = v[0], v[1]
	}
	weight := math.Pow(s.step, h.float("beta2_decay"))
	alpha := max(eps2, rms(s.p)) * min(h.float("lr"), 1/math.Sqrt(s.step))
	scale(s.p, 1-h.float("lr")*h.float("weight_decay"))
	var estimate []float64
	if len(s.size) > 1 {
		row, column := s.meanSquares(0)
		lerp(s.states[0], weight, func(i int) float64 { return row[i] })
		lerp(s.states[1], weight, func(i int) float64 { return column[i] })
		estimate = s.outer(s.states[0], s.states[1], eps1)
	} else {
		lerp(s.states[0], weight, func(i int) float64 { return s.g[i] * s.g[i] })
		estimate = append(estimate, s.states[0]...)
	}
	update := estimate
	for i, v := range estimate {
		update[i] = s.g[i] / math.Sqrt(max(v, eps1*eps1))
	}
	s.add(update, -alpha/max(1, rms(update)/h.float("d")))
}

// hfAdafactor is Adafactor.step in transformers/optimization.py. Its states are the
// root mean square, perhaps a moment, and the variance or what it is made of.
func hfAdafactor(h hyper, s *stepAside) {
	eps1, eps2 := h.pair("eps")
	beta1, moment := h.value("beta1").(float64)
	states := s.states[1:]
	if moment {
		states = states[1:]
	}
	root := rms(s.p)
	if len(s.states[0]) > 0 {
		s.states[0][0] = root
	}
	lr := h.float("lr")
	if h.flag("relative_step") == 1 {
		least := 1e-2
		if h.flag("warmup_init") == 1 {
			least = 1e-6 * s.step
		}
		lr = min(least, 1/math.Sqrt(s.step))
	}
	if h.flag("scale_parameter") == 1 {
		lr *= max(eps2, root)
	}
	weight := math.Pow(s.step, h.float("decay_rate"))
	var update []float64
	if len(s.size) > 1 {
		row, column := s.meanSquares(eps1)
		lerp(states[0], weight, func(i int) float64 { return row[i] })
		lerp(states[1], weight, func(i int) float64 { return column[i] })
		update = s.outer(states[0], states[1], 0)
	} else {
		lerp(states[0], weight, func(i int) float64 { return s.g[i]*s.g[i] + eps1 })
		update = append(update, states[0]...)
	}
	for i, v := range update {
		update[i] = s.g[i] / math.Sqrt(v)
	}
	scale(update, lr/max(1, rms(update)/h.float("clip_threshold")))
	if moment {
		lerp(s.states[1], 1-beta1, func(i int) float64 { return update[i] })
		update = s.states[1]
	}
	scale(s.p, 1-h.float("weight_decay")*lr)
	s.add(update, -1)
}

func scale(v []float64, by float64) {
	for i := range v {
		v[i] *= by
	}
}

// add changes the parameter by a multiple of a vector.
func (s *stepAside) add(v []float64, by float64) {
	for i := range s.p {
		s.p[i] += by * v[i]
	}
}

// lambClip divides the gradients of all groups by how far their norm is beyond
// max_grad_norm (timm/optim/lamb.py: Lamb.step).
func lambClip(x *Executor, h hyper, groups []optim.Group) error {
	if h.value("max_grad_norm") == nil {
		return nil
	}
	var grads []*op.Tensor
	for _, g := range groups {
		for _, p := range g.Params {
			grads = append(grads, p.Grad)
		}
	}
	return x.aside(func(a *aside) {
		var norms []float64
		for _, g := range grads {
			norms = append(norms, norm(a.get(g).v))
		}
		by := max(norm(norms)/h.float("max_grad_norm"), 1)
		for _, g := range grads {
			v := a.get(g).v
			for i := range v {
				v[i] /= by
			}
			a.put(g, v)
		}
	})
}

// lamb is a parameter's part of Lamb.step.
func lamb(h hyper, s *stepAside) {
	beta1, beta2 := h.pair("betas")
	bias1, bias2, beta3 := 1.0, 1.0, 1.0
	if h.flag("bias_correction") == 1 {
		bias1, bias2 = 1-math.Pow(beta1, s.step), 1-math.Pow(beta2, s.step)
	}
	if h.flag("grad_averaging") == 1 {
		beta3 = 1 - beta1
	}
	m, v := s.states[0], s.states[1]
	update := make([]float64, len(s.p))
	for i, g := range s.g {
		m[i] = beta1*m[i] + beta3*g
		v[i] = beta2*v[i] + (1-beta2)*g*g
		update[i] = m[i] / bias1 / (math.Sqrt(v[i])/math.Sqrt(bias2) + h.float("eps"))
	}
	if h.flag("caution") == 1 {
		agree := 0.0
		for i, g := range s.g {
			if update[i]*g > 0 {
				agree++
			} else {
				update[i] = 0
			}
		}
		scale(update, 1/max(agree/float64(len(s.g)), 1e-3))
	}
	lr, decay := h.float("lr"), h.float("weight_decay")
	switch {
	case decay != 0 && h.flag("decoupled_decay") == 1:
		scale(s.p, 1-lr*decay)
	case decay != 0:
		for i := range update {
			update[i] += decay * s.p[i]
		}
	}
	if decay != 0 || h.flag("always_adapt") == 1 {
		trust := 1.0
		if p, u := norm(s.p), norm(update); p > 0 && u > 0 {
			trust = p / u
		}
		if h.flag("trust_clip") == 1 {
			trust = min(trust, 1)
		}
		scale(update, trust)
	}
	s.add(update, -lr)
}

// inBFloat16 rounds numbers.
func inBFloat16(v []float64) []float64 {
	return tensor.Decode(tensor.BFloat16, tensor.Encode(tensor.BFloat16, v))
}

// muon is _single_tensor_muon in torch/optim/_muon.py: the momentum of a matrix,
// orthogonalized in bfloat16 by Newton-Schulz iterations.
func muon(h hyper, s *stepAside) {
	rows, columns := s.size[0], s.size[1]
	momentum, lr := h.float("momentum"), h.float("lr")
	lerp(s.states[0], 1-momentum, func(i int) float64 { return s.g[i] })
	update := append([]float64(nil), s.states[0]...)
	if h.flag("nesterov") == 1 {
		copy(update, s.g)
		lerp(update, momentum, func(i int) float64 { return s.states[0][i] })
	}
	c, _ := h.value("ns_coefficients").([]float64)
	x := inBFloat16(update)
	m, n := rows, columns
	if rows > columns {
		x, m, n = transposed(x, rows, columns), columns, rows
	}
	size := inBFloat16([]float64{max(norm(x), h.float("eps"))})[0]
	for i := range x {
		x[i] /= size
	}
	x = inBFloat16(x)
	for range int(h.float("ns_steps")) {
		gram := inBFloat16(product2(x, transposed(x, m, n), m, n, m))
		poly := product2(gram, gram, m, m, m)
		for i := range poly {
			poly[i] = c[1]*gram[i] + c[2]*poly[i]
		}
		next := product2(inBFloat16(poly), x, m, m, n)
		for i := range next {
			next[i] += c[0] * x[i]
		}
		x = inBFloat16(next)
	}
	if rows > columns {
		x = transposed(x, m, n)
	}
	ratio := math.Sqrt(max(1, float64(rows)/float64(columns)))
	if h.value("adjust_lr_fn") == "match_rms_adamw" {
		ratio = 0.2 * math.Sqrt(float64(max(rows, columns)))
	}
	scale(s.p, 1-lr*h.float("weight_decay"))
	s.add(x, -lr*ratio)
}

// transposed is a matrix of rows and columns the other way round.
func transposed(v []float64, rows, columns int) []float64 {
	out := make([]float64, len(v))
	for i := range rows {
		for j := range columns {
			out[j*rows+i] = v[i*columns+j]
		}
	}
	return out
}

// product2 is a times b, of m×k and k×n elements.
func product2(a, b []float64, m, k, n int) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for l := range k {
			for j := range n {
				out[i*n+j] += a[i*k+l] * b[l*n+j]
			}
		}
	}
	return out
}
