package array

// Linear is an operator whose result is a sparse matrix times its first input: it
// moves, gathers, repeats or mixes elements. Entries gives the matrix: element from
// counts with a weight in element to. Its derivative is the transpose. Both are of one
// plane, of which there are as many as Planes says, one after the other.
type Linear struct {
	Entries func(m *Matrix)
	Planes  func(m *Matrix) int // nil: 1
}

// Matrix is what the entries of a linear operator depend on.
type Matrix struct {
	In, Out []int       // sizes
	Index   [][]float64 // the further inputs
	Emit    func(to, from int, weight float64)
}

// Last are the last n sizes of a result and of the input.
func (m *Matrix) Last(n int) (out, in []int) { return m.Out[len(m.Out)-n:], m.In[len(m.In)-n:] }

// leading is the number of planes over all dimensions but the last n.
func leading(n int) func(m *Matrix) int {
	return func(m *Matrix) int { return Numel(m.In[:len(m.In)-n]) }
}

// Run calls f for each entry of each plane.
func (l Linear) Run(m *Matrix, f func(to, from int, weight float64)) error {
	planes := 1
	if l.Planes != nil {
		planes = l.Planes(m)
	}
	if planes == 0 {
		return nil
	}
	var err error
	out, in := Numel(m.Out)/planes, Numel(m.In)/planes
	m.Emit = func(to, from int, weight float64) {
		switch {
		case err != nil:
		case from < 0 || from >= in:
			err = Outside(from, in)
		case to < 0 || to >= out:
			err = Outside(to, out)
		default:
			for p := range planes {
				f(p*out+to, p*in+from, weight)
			}
		}
	}
	l.Entries(m)
	return err
}

// moved is a linear operator whose result has at each place one element of the input,
// or none where from is negative.
func moved(n int, from func(m *Matrix) func(at []int) int) Linear {
	l := Linear{Entries: func(m *Matrix) {
		out := m.Out
		if n > 0 {
			out, _ = m.Last(n)
		}
		f := from(m)
		walk(out, func(i int, at []int) {
			if k := f(at); k >= 0 {
				m.Emit(i, k, 1)
			}
		})
	}}
	if n > 0 {
		l.Planes = leading(n)
	}
	return l
}
