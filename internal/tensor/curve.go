package tensor

// Places are where curves are known: two or three different values of what they are
// functions of.
type Places struct {
	at [3]int64
	n  int
}

// PlacesAt are two or three places.
func PlacesAt(at ...int64) Places {
	p := Places{n: len(at)}
	copy(p.at[:], at)
	return p
}

// Curve is a polynomial in Newton's form: a line through two places, a parabola
// through three. Its coefficients are integers.
type Curve struct{ First, Slope, Bend int64 }

// Curve lays one through values at the places; false if there is none.
func (p Places) Curve(values ...int64) (c Curve, ok bool) {
	c.First = values[0]
	c.Slope, ok = divide(values[1]-values[0], p.at[1]-p.at[0])
	if p.n > 2 {
		far, whole := divide(values[2]-values[0], p.at[2]-p.at[0])
		ok = ok && whole
		c.Bend, whole = divide(far-c.Slope, p.at[2]-p.at[1])
		ok = ok && whole
	}
	return c, ok
}

// Square is the curve of a number times the square through values at two places; false if
// there is none.
func (p Places) Square(values ...int64) (c Curve, ok bool) {
	x, y := p.at[0], p.at[1]
	if x == 0 || y == 0 {
		return c, false
	}
	n, ok := divide(values[0], x*x)
	m, whole := divide(values[1], y*y)
	return Curve{First: values[0], Slope: n * (x + y), Bend: n}, ok && whole && n == m
}

func divide(n, d int64) (q int64, whole bool) { return n / d, n%d == 0 }

// From is how far k is from the first place and from the second, which a curve's slope
// and bend are multiplied with: the slope with the first, the bend with both.
func (p Places) From(k int64) (a, b float64) {
	return float64(k - p.at[0]), float64(k - p.at[1])
}

// At is the value of a curve at k; false if a sum of such values may overflow.
func (p Places) At(c Curve, k int64) (int64, bool) {
	const large = 1 << 52
	a := k - p.at[0]
	v, f := c.First+c.Slope*a, float64(c.First)+float64(c.Slope)*float64(a)
	if c.Bend != 0 {
		b := k - p.at[1]
		v += c.Bend * a * b
		f += float64(c.Bend) * float64(a) * float64(b)
	}
	return v, -large < f && f < large
}

// Through is the layout at k whose numbers lie on curves through those of others at
// the places; false if there is none.
func (p Places) Through(k int64, ls ...Layout) (Layout, bool) {
	l, ok := ls[0], true
	for i := range ls {
		ok = ok && ls[i].Size.n == l.Size.n && ls[i].Stride.n == l.Stride.n
	}
	var values [3]int64
	through := func(n *int64) {
		c, is := p.Curve(values[:len(ls)]...)
		v, fits := p.At(c, k)
		ok = ok && is && fits && v >= 0
		*n = v
	}
	for i := range ls {
		values[i] = ls[i].Offset
	}
	through(&l.Offset)
	for d := range l.Size.n {
		for i := range ls {
			values[i] = ls[i].Size.v[d]
		}
		through(&l.Size.v[d])
	}
	for d := range l.Stride.n {
		for i := range ls {
			values[i] = ls[i].Stride.v[d]
		}
		through(&l.Stride.v[d])
	}
	return l, ok
}
