package accuracy

import (
	"math"
	"slices"
)

// LeftOut is how the interval of reserved memory does on runs of convolutional
// networks if it is computed from all runs but those of a network or of a GPU.
type LeftOut struct {
	What         string  // is left out
	Below, Above float64 // the interval, as shares of what is predicted
	Runs, Inside int     // of what is left out
}

// Tolerance is the interval, as shares below and above predictions, in which 90 % of
// all runs lie with 95 % confidence if the logarithms of what was measured to what
// was predicted are normally distributed: mean ± k standard deviations, k by Howe's
// approximation (ISO 16269-6).
func Tolerance(list []*Measured) (below, above float64) {
	// chi2 are the 5 % quantiles of the chi-squared distribution with 2 to 14
	// degrees of freedom.
	chi2 := []float64{0.10259, 0.35185, 0.71072, 1.14548, 1.63538, 2.16735, 2.73264, 3.32511, 3.94030, 4.57481, 5.22603, 5.89186, 6.57063}
	const z = 1.644854 // 90 % of a normal distribution lie within z standard deviations
	var sum, squares float64
	for _, m := range list {
		r := math.Log(float64(m.Peak) / float64(m.Predicted))
		sum, squares = sum+r, squares+r*r
	}
	n := float64(len(list))
	mean := sum / n
	k := z * math.Sqrt((n*n-1)/n/chi2[len(list)-3])
	spread := k * math.Sqrt((squares-n*mean*mean)/(n-1))
	return 1 - math.Exp(mean-spread), math.Exp(mean+spread) - 1
}

// leaveOut leaves each network and each GPU out in turn.
func leaveOut(list []*Measured) []LeftOut {
	var out []LeftOut
	without := func(what string, of func(*Measured) string) {
		l := LeftOut{What: what}
		var rest []*Measured
		for _, m := range list {
			if of(m) != what {
				rest = append(rest, m)
			}
		}
		l.Below, l.Above = Tolerance(rest)
		for _, m := range list {
			if of(m) == what {
				l.Runs++
				if p := float64(m.Predicted); float64(m.Peak) >= p*(1-l.Below) && float64(m.Peak) <= p*(1+l.Above) {
					l.Inside++
				}
			}
		}
		out = append(out, l)
	}
	for _, of := range []func(*Measured) string{func(m *Measured) string { return m.Family }, func(m *Measured) string { return m.GPU }} {
		var names []string
		for _, m := range list {
			names = append(names, of(m))
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			without(name, of)
		}
	}
	return out
}

// compared are the runs of a suite with a prediction.
func (r *Results) compared(suite string) []*Measured {
	return slices.DeleteFunc(r.measured(suite), func(m *Measured) bool { return m.Skipped != "" || m.Failed != "" })
}
