package array

import "fmt"

// Flip reverses dimensions.
func Flip(dims []int64) Linear {
	return moved(0, func(m *Matrix) func(at []int) int {
		flipped := make([]bool, len(m.In))
		for _, d := range dims {
			flipped[Dim(int(d), len(m.In))] = true
		}
		src := make([]int, len(m.In))
		return func(at []int) int {
			for d, i := range at {
				if src[d] = i; flipped[d] {
					src[d] = m.In[d] - 1 - i
				}
			}
			return rowMajor(m.In, src)
		}
	})
}

// Roll shifts along dimensions, or, without any, everything as if it were flat.
func Roll(shifts, dims []int64) Linear {
	return moved(0, func(m *Matrix) func(at []int) int {
		n := Numel(m.In)
		src := make([]int, len(m.In))
		return func(at []int) int {
			if len(dims) == 0 {
				return mod(rowMajor(m.In, at)-int(shifts[0]), n)
			}
			copy(src, at)
			for k, d := range dims {
				i := Dim(int(d), len(m.In))
				src[i] = mod(src[i]-int(shifts[k]), m.In[i])
			}
			return rowMajor(m.In, src)
		}
	})
}

// mod is the remainder with the sign of n.
func mod(i, n int) int { return ((i % n) + n) % n }

// PixelShuffle moves channels into pixels.
func PixelShuffle(r int) Linear {
	return moved(3, func(m *Matrix) func(at []int) int {
		_, in := m.Last(3)
		return func(at []int) int {
			c := (at[0]*r+at[1]%r)*r + at[2]%r
			return rowMajor(in, []int{c, at[1] / r, at[2] / r})
		}
	})
}

// PixelUnshuffle moves pixels into channels.
func PixelUnshuffle(r int) Linear {
	return moved(3, func(m *Matrix) func(at []int) int {
		_, in := m.Last(3)
		return func(at []int) int {
			return rowMajor(in, []int{at[0] / (r * r), at[1]*r + at[0]/r%r, at[2]*r + at[0]%r})
		}
	})
}

// ChannelShuffle changes the order of channels, of which it moves whole images.
func ChannelShuffle(groups int) Linear {
	return Linear{Entries: func(m *Matrix) {
		channels, pixels := m.In[1], Numel(m.In[2:])
		for n := range m.In[0] {
			for c := range channels {
				from := c%groups*(channels/groups) + c/groups
				for p := range pixels {
					m.Emit((n*channels+c)*pixels+p, (n*channels+from)*pixels+p, 1)
				}
			}
		}
	}}
}

// Bordered repeats what lies at the border of the last dimensions, of which pad has the
// amounts in front and behind, the last dimension first. at gives the place in a
// dimension of n elements that stands i elements behind its first.
func Bordered(pad []int64, at func(i, n int) int) Linear {
	return moved(len(pad)/2, func(m *Matrix) func(place []int) int {
		_, in := m.Last(len(pad) / 2)
		src := make([]int, len(in))
		return func(to []int) int {
			for d, i := range to {
				src[d] = at(i-int(pad[2*(len(in)-1-d)]), in[d])
			}
			return rowMajor(in, src)
		}
	})
}

// Reflected is the element of n that lies i behind the first, mirrored at the borders.
func Reflected(i, n int) int {
	if i < 0 {
		i = -i
	}
	if i >= n {
		i = 2*(n-1) - i
	}
	return i
}

// Repeat copies the input several times along dimensions.
var Repeat = moved(0, func(m *Matrix) func(at []int) int {
	more := len(m.Out) - len(m.In)
	src := make([]int, len(m.In))
	return func(at []int) int {
		for d := range src {
			src[d] = at[d+more] % m.In[d]
		}
		return rowMajor(m.In, src)
	}
})

// Diagonal puts vectors on the diagonals of matrices.
var Diagonal = Linear{Planes: leading(1), Entries: func(m *Matrix) {
	n := m.In[len(m.In)-1]
	for i := range n {
		m.Emit(i*n+i, i, 1)
	}
}}

// Windows are those of images that unfold sees as columns, along both dimensions.
type Windows struct{ Kernel, Stride, Padding, Dilation []int64 }

// each says, of an image of some size, which elements the windows have: element k of
// window w is element from of the image.
func (a *Windows) each(height, width int, f func(k, w, from int)) {
	pair := func(v []int64, i int) int { return int(v[min(i, len(v)-1)]) }
	count := func(n, i int) int {
		return (n+2*pair(a.Padding, i)-pair(a.Dilation, i)*(pair(a.Kernel, i)-1)-1)/pair(a.Stride, i) + 1
	}
	rows, cols := count(height, 0), count(width, 1)
	for kh := range pair(a.Kernel, 0) {
		for kw := range pair(a.Kernel, 1) {
			for h := range rows {
				for w := range cols {
					y := h*pair(a.Stride, 0) - pair(a.Padding, 0) + kh*pair(a.Dilation, 0)
					x := w*pair(a.Stride, 1) - pair(a.Padding, 1) + kw*pair(a.Dilation, 1)
					if y >= 0 && y < height && x >= 0 && x < width {
						f(kh*pair(a.Kernel, 1)+kw, h*cols+w, y*width+x)
					}
				}
			}
		}
	}
}

// Unfold makes columns of windows.
func (a *Windows) Unfold() Linear {
	return Linear{Planes: func(m *Matrix) int { return Numel(m.In[:len(m.In)-2]) }, Entries: func(m *Matrix) {
		_, in := m.Last(2)
		n := m.Out[len(m.Out)-1]
		a.each(in[0], in[1], func(k, w, from int) { m.Emit(k*n+w, from, 1) })
	}}
}

// Fold adds columns up to images.
func (a *Windows) Fold() Linear {
	return Linear{Planes: func(m *Matrix) int { return Numel(m.Out[:len(m.Out)-2]) }, Entries: func(m *Matrix) {
		out, in := m.Last(2)
		a.each(out[0], out[1], func(k, w, to int) { m.Emit(to, k*in[1]+w, 1) })
	}}
}

// Select takes slices along a dimension by an index of any shape.
func Select(dim int) Linear {
	return Linear{Entries: func(m *Matrix) {
		d := Dim(dim, len(m.In))
		n, inner, index := m.In[d], Numel(m.In[d+1:]), m.Index[0]
		for o := range Numel(m.In[:d]) {
			for k, v := range index {
				from := Index(v, n)
				if from < 0 || from >= n {
					m.Emit(0, -1, 0)
					return
				}
				for i := range inner {
					m.Emit((o*len(index)+k)*inner+i, (o*n+from)*inner+i, 1)
				}
			}
		}
	}}
}

// Gather takes the elements that an index of the result's shape names.
func Gather(dim int) Linear {
	return moved(0, func(m *Matrix) func(at []int) int {
		d := Dim(dim, len(m.In))
		src, k := make([]int, len(m.In)), -1
		return func(at []int) int {
			copy(src, at)
			k++
			if src[d] = Index(m.Index[0][k], m.In[d]); src[d] < 0 || src[d] >= m.In[d] {
				return Numel(m.In) // which is refused
			}
			return rowMajor(m.In, src)
		}
	})
}

// Masked takes the slices of which a mask holds.
var Masked = Linear{Entries: func(m *Matrix) {
	inner, k := Numel(m.In)/max(len(m.Index[0]), 1), 0
	for from, set := range m.Index[0] {
		if set == 0 {
			continue
		}
		for i := range inner {
			m.Emit(k*inner+i, from*inner+i, 1)
		}
		k++
	}
	if k != m.Out[0] {
		m.Emit(0, -1-k, 0)
	}
}}

// Pairs calls f for each element that two indices of one length take of an array of a
// size.
func Pairs(size []int, i, j []float64, f func(to, from int)) error {
	inner := Numel(size[2:])
	for k := range i {
		m, n := Index(i[k], size[0]), Index(j[k], size[1])
		if m < 0 || m >= size[0] || n < 0 || n >= size[1] {
			return fmt.Errorf("index (%v, %v) is outside of %d by %d elements", i[k], j[k], size[0], size[1])
		}
		for e := range inner {
			f(k*inner+e, (m*size[1]+n)*inner+e)
		}
	}
	return nil
}

// Unpool calls f for each element of planes of n dimensions with the place in planes of
// another size that an index names.
func Unpool(n int, out, in []int, index []float64, f func(to, from int)) error {
	plane, window := Numel(out[len(out)-n:]), Numel(in[len(in)-n:])
	for _, at := range index {
		if at < 0 || int(at) >= plane {
			return Outside(int(at), plane)
		}
	}
	for from, at := range index {
		f(from/window*plane+int(at), from)
	}
	return nil
}

// AffineGrid gives the coordinates of each position: a matrix of the batch times
// those of the base and a one.
func AffineGrid(align bool) Linear {
	return Linear{Entries: func(m *Matrix) {
		size := m.Out[1 : len(m.Out)-1]
		n := len(size)
		base := func(i, d int) float64 { // coordinate of position i in dimension d
			s := size[d]
			if s <= 1 {
				return 0
			}
			v := -1 + 2*float64(i)/float64(s-1)
			if !align {
				v *= float64(s-1) / float64(s)
			}
			return v
		}
		pixels := Numel(size)
		for k := range m.Out[0] {
			walk(size, func(i int, at []int) {
				for row := range n {
					to := (k*pixels+i)*n + row
					for col := range n + 1 {
						w := 1.0
						if col < n {
							w = base(at[n-1-col], n-1-col)
						}
						m.Emit(to, (k*n+row)*(n+1)+col, w)
					}
				}
			})
		}
	}}
}
