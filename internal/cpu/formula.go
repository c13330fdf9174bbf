package cpu

import (
	"math"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/kernel"
)

// formulaRun is how many elements of a formula are computed at a time: its values
// lie in the processor's nearest cache.
const formulaRun = 256

// formula is the state of a kernel's formula in one goroutine: a run of each of its
// values, and of terms under way.
type formula struct {
	k      *kernel.Kernel
	values map[string][]float64
	spare  [][]float64
}

func newFormula(l *launch) *formula {
	f := &formula{k: l.call.Kernel, values: map[string][]float64{}}
	for _, names := range [][]string{f.k.Tensors, f.k.Floats, f.k.Variables()} {
		for _, n := range names {
			f.values[strings.TrimSuffix(n, "?")] = make([]float64, formulaRun)
		}
	}
	for i, n := range f.k.Floats {
		v := f.values[n]
		for j := range v {
			v[j] = l.call.F[i]
		}
	}
	return f
}

// take returns room for a run, which give takes back.
func (f *formula) take() []float64 {
	if n := len(f.spare); n > 0 {
		v := f.spare[n-1]
		f.spare = f.spare[:n-1]
		return v
	}
	return make([]float64, formulaRun)
}

func (f *formula) give(v []float64) { f.spare = append(f.spare, v) }

// eval computes n elements of a term into y.
func (f *formula) eval(t *kernel.Term, y []float64, n int) {
	y = y[:n]
	switch {
	case t.Name != "":
		copy(y, f.values[t.Name])
		return
	case t.Op == "":
		for i := range y {
			y[i] = t.Number
		}
		return
	}
	args := make([][]float64, len(t.Args))
	for i, a := range t.Args {
		if a.Name != "" {
			args[i] = f.values[a.Name][:n]
			continue
		}
		room := f.take()
		defer f.give(room)
		f.eval(a, room, n)
		args[i] = room[:n]
	}
	apply(t.Op, y, args)
}

// apply computes a function of runs.
func apply(op string, y []float64, x [][]float64) {
	a := x[0][:len(y)]
	var b []float64
	if len(x) > 1 {
		b = x[1][:len(y)]
	}
	switch op {
	case "+":
		for i := range y {
			y[i] = a[i] + b[i]
		}
	case "-":
		for i := range y {
			y[i] = a[i] - b[i]
		}
	case "*":
		for i := range y {
			y[i] = a[i] * b[i]
		}
	case "/":
		for i := range y {
			y[i] = a[i] / b[i]
		}
	case "sqrt":
		for i := range y {
			y[i] = math.Sqrt(a[i])
		}
	case "abs":
		for i := range y {
			y[i] = math.Abs(a[i])
		}
	case "sign":
		for i := range y {
			y[i] = choose(a[i], 1, -1, a[i]) // of NaN NaN
		}
	case "max":
		for i := range y {
			y[i] = max(a[i], b[i])
		}
	case "min":
		for i := range y {
			y[i] = min(a[i], b[i])
		}
	case "tanh":
		for i := range y {
			y[i] = math.Tanh(a[i])
		}
	case "sigmoid":
		for i := range y {
			y[i] = 1 / (1 + math.Exp(-a[i]))
		}
	case "choose":
		for i := range y {
			y[i] = choose(a[i], b[i], x[2][i], x[3][i])
		}
	}
}

func choose(x, positive, negative, zero float64) float64 {
	switch {
	case x > 0:
		return positive
	case x < 0:
		return negative
	}
	return zero
}

// byFormula runs a kernel that is defined by its formula.
func byFormula[T float](l *launch) error {
	k := l.call.Kernel
	var lines []kernel.Assignment
	for _, a := range k.Formula {
		if a.When == "" || l.set(a.When) {
			lines = append(lines, a)
		}
	}
	states := sync.Pool{New: func() any { return newFormula(l) }}
	l.over().each(func(at []int, n int, step []int) {
		f := states.Get().(*formula)
		defer states.Put(f)
		for from := 0; from < n; from += formulaRun {
			m := min(formulaRun, n-from)
			for o, name := range k.Tensors {
				data := view[T](l, o)
				if data == nil {
					continue
				}
				data, v := data[at[o]+from*step[o]:], f.values[strings.TrimSuffix(name, "?")]
				for i := range m {
					v[i] = float64(data[i*step[o]])
				}
			}
			for _, a := range lines {
				y := f.take()
				f.eval(a.Value, y, m)
				f.give(f.values[a.To])
				f.values[a.To] = y
			}
			for o, name := range k.Tensors[:k.Outputs] {
				data := view[T](l, o)
				if data == nil {
					continue
				}
				data, v := data[at[o]+from*step[o]:], f.values[strings.TrimSuffix(name, "?")]
				for i := range m {
					data[i*step[o]] = T(v[i])
				}
			}
		}
	})
	return nil
}

// set reports whether an optional operand is there, or a number is not 0.
func (l *launch) set(name string) bool {
	for i, n := range l.call.Kernel.Tensors {
		if strings.TrimSuffix(n, "?") == name {
			return l.has(i)
		}
	}
	for i, n := range l.call.Kernel.Floats {
		if n == name {
			return l.call.F[i] != 0
		}
	}
	return false
}

// formulaRow is every kernel that is defined by its formula.
var formulaRow = floats(byFormula[float32], byFormula[float64])
