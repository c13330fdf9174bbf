package runtime

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// flipped reverses dimensions.
func flipped(m *matrix) func(at []int) int {
	dims := make([]bool, len(m.in))
	for _, d := range m.args.(*op.FlipArgs).Dims {
		dims[dim(int(d), len(m.in))] = true
	}
	src := make([]int, len(m.in))
	return func(at []int) int {
		for d, i := range at {
			if src[d] = i; dims[d] {
				src[d] = m.in[d] - 1 - i
			}
		}
		return place(m.in, src)
	}
}

// rolled shifts along dimensions, or everything as if it were flat.
func rolled(m *matrix) func(at []int) int {
	a := m.args.(*op.RollArgs)
	n := numel(m.in)
	src := make([]int, len(m.in))
	return func(at []int) int {
		if len(a.Dims) == 0 {
			return mod(place(m.in, at)-int(a.Shifts[0]), n)
		}
		copy(src, at)
		for k, d := range a.Dims {
			i := dim(int(d), len(m.in))
			src[i] = mod(src[i]-int(a.Shifts[k]), m.in[i])
		}
		return place(m.in, src)
	}
}

// mod is the remainder with the sign of n.
func mod(i, n int) int { return ((i % n) + n) % n }

// shuffled moves channels into pixels.
func shuffled(m *matrix) func(at []int) int {
	r := int(m.args.(*op.ShuffleArgs).Up)
	_, in := m.last(3)
	return func(at []int) int {
		c := (at[0]*r+at[1]%r)*r + at[2]%r
		return place(in, []int{c, at[1] / r, at[2] / r})
	}
}

// unshuffled moves pixels into channels.
func unshuffled(m *matrix) func(at []int) int {
	r := int(m.args.(*op.ShuffleArgs).Down)
	_, in := m.last(3)
	return func(at []int) int {
		return place(in, []int{at[0] / (r * r), at[1]*r + at[0]/r%r, at[2]*r + at[0]%r})
	}
}

// regrouped changes the order of channels, of which the matrix moves whole images.
func regrouped(m *matrix) {
	g := int(m.args.(*op.GroupsArgs).Groups)
	channels, pixels := m.in[1], numel(m.in[2:])
	for n := range m.in[0] {
		for c := range channels {
			from := c%g*(channels/g) + c/g
			for p := range pixels {
				m.emit((n*channels+c)*pixels+p, (n*channels+from)*pixels+p, 1)
			}
		}
	}
}

// bordered repeats what lies at the border. at gives the place in a dimension of n
// elements that stands i elements behind its first.
func bordered(at func(i, n int) int) func(m *matrix) func(at []int) int {
	return func(m *matrix) func(place []int) int {
		pad := m.args.(*op.PadArgs).Pad
		_, in := m.last(len(pad) / 2)
		src := make([]int, len(in))
		return func(to []int) int {
			for d, i := range to {
				src[d] = at(i-int(pad[2*(len(in)-1-d)]), in[d])
			}
			return place(in, src)
		}
	}
}

func nearest(i, n int) int { return min(max(i, 0), n-1) }

func reflected(i, n int) int {
	if i < 0 {
		i = -i
	}
	if i >= n {
		i = 2*(n-1) - i
	}
	return i
}

// padded puts the input among numbers; amounts below 0 cut it.
func padded(m *matrix) func(at []int) int {
	pad := m.args.(*op.PadArgs).Pad
	src := make([]int, len(m.in))
	return func(at []int) int {
		for d, i := range at {
			before := 0
			if k := len(m.in) - 1 - d; 2*k < len(pad) {
				before = int(pad[2*k])
			}
			if src[d] = i - before; src[d] < 0 || src[d] >= m.in[d] {
				return -1
			}
		}
		return place(m.in, src)
	}
}

// repeated copies the input several times along dimensions.
func repeated(m *matrix) func(at []int) int {
	more := len(m.out) - len(m.in)
	src := make([]int, len(m.in))
	return func(at []int) int {
		for d := range src {
			src[d] = at[d+more] % m.in[d]
		}
		return place(m.in, src)
	}
}

// windows says, of an image of some size, which elements the windows of a fold
// have: element k of window w is element from of the image.
func windows(a *op.FoldArgs, height, width int, f func(k, w, from int)) {
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

// indexed is the number of an element along a dimension of n; a negative one
// counts from the end.
func indexed(v float64, n int) int {
	i := int(v)
	if i < 0 {
		i += n
	}
	return i
}

// selected takes slices along a dimension by an index of any shape.
func selected(m *matrix) {
	d := dim(m.args.(*op.DimArgs).Dim, len(m.in))
	n, inner, index := m.in[d], numel(m.in[d+1:]), m.index[0]
	for o := range numel(m.in[:d]) {
		for k, v := range index {
			from := indexed(v, n)
			if from < 0 || from >= n {
				m.emit(0, -1, 0)
				return
			}
			for i := range inner {
				m.emit((o*len(index)+k)*inner+i, (o*n+from)*inner+i, 1)
			}
		}
	}
}

// gathered takes the elements that an index of the result's shape names.
func gathered(m *matrix) func(at []int) int {
	d := dim(m.args.(*op.DimArgs).Dim, len(m.in))
	src, k := make([]int, len(m.in)), -1
	return func(at []int) int {
		copy(src, at)
		k++
		if src[d] = indexed(m.index[0][k], m.in[d]); src[d] < 0 || src[d] >= m.in[d] {
			return numel(m.in) // which is refused
		}
		return place(m.in, src)
	}
}

// pairs calls f for each element that two indices, broadcast against each other, take
// of a tensor of some size.
func pairs(a *aside, size []int, i, j *op.Tensor, f func(to, from int)) {
	lead, err := tensor.Broadcast(i.Size, j.Size)
	if err != nil {
		a.fail(err)
		return
	}
	first, second, inner := a.like(i, lead), a.like(j, lead), numel(size[2:])
	for k := range first {
		m, n := indexed(first[k], size[0]), indexed(second[k], size[1])
		if m < 0 || m >= size[0] || n < 0 || n >= size[1] {
			a.fail(fmt.Errorf("index (%v, %v) is outside of %d by %d elements", first[k], second[k], size[0], size[1]))
			return
		}
		for e := range inner {
			f(k*inner+e, (m*size[1]+n)*inner+e)
		}
	}
}

// linearRows move elements, or mix neighbours.
var linearRows = map[*op.Op]row{
	op.Flip:                moved(0, flipped).row(),
	op.Roll:                moved(0, rolled).row(),
	op.Repeat:              moved(0, repeated).row().inParts(),
	op.PixelShuffle:        moved(3, shuffled).row(),
	op.PixelUnshuffle:      moved(3, unshuffled).row(),
	op.ChannelShuffle:      linear{entries: regrouped}.row(),
	op.ReflectionPads[1]:   moved(1, bordered(reflected)).row(),
	op.ReflectionPads[2]:   moved(2, bordered(reflected)).row(),
	op.ReflectionPads[3]:   moved(3, bordered(reflected)).row(),
	op.ReplicationPads[1]:  moved(1, bordered(nearest)).row(),
	op.ReplicationPads[2]:  moved(2, bordered(nearest)).row(),
	op.ReplicationPads[3]:  moved(3, bordered(nearest)).row(),
	op.ConstantPad:         constantPad.row().inParts(),
	op.IndexSelect:         linear{entries: selected}.row(),
	op.IndexTensor:         linear{entries: selected}.row(),
	op.Gather:              moved(0, gathered).row(),
	op.AffineGridGenerator: linear{entries: affineGrid}.row(),
	op.Im2col: linear{planes: func(m *matrix) int { return numel(m.in[:len(m.in)-2]) }, entries: func(m *matrix) {
		_, in := m.last(2)
		n := m.out[len(m.out)-1]
		windows(m.args.(*op.FoldArgs), in[0], in[1], func(k, w, from int) { m.emit(k*n+w, from, 1) })
	}}.row(),
	op.Col2im: linear{planes: func(m *matrix) int { return numel(m.out[:len(m.out)-2]) }, entries: func(m *matrix) {
		out, in := m.last(2)
		windows(m.args.(*op.FoldArgs), out[0], out[1], func(k, w, to int) { m.emit(to, k*in[1]+w, 1) })
	}}.row(),
	op.IndexPair: asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		y := make([]float64, c.Out[0].Numel())
		pairs(a, x.size, c.In[1], c.In[2], func(to, from int) { y[to] = x.v[from] })
		a.put(c.Out[0], y)
	}, func(a *aside, b *op.Back) {
		if r := wanted(b, 0); r != nil {
			g, out := a.get(b.Grads[0]), make([]float64, r.Numel())
			pairs(a, ints(r.Size), b.SavedIn[1], b.SavedIn[2], func(to, from int) { out[from] += g.v[to] })
			a.put(r, out)
		}
	}),
	op.IndexMask: linear{entries: func(m *matrix) {
		inner, k := numel(m.in)/max(len(m.index[0]), 1), 0
		for from, set := range m.index[0] {
			if set == 0 {
				continue
			}
			for i := range inner {
				m.emit(k*inner+i, from*inner+i, 1)
			}
			k++
		}
		if k != m.out[0] {
			m.emit(0, -1-k, 0)
		}
	}}.row(),
	// The derivative is the diagonal, a view.
	op.DiagEmbed: linear{planes: leading(1), entries: func(m *matrix) {
		n := m.in[len(m.in)-1]
		for i := range n {
			m.emit(i*n+i, i, 1)
		}
	}}.row().inParts(),
	op.MaxUnpools[2]: unpooled(2), op.MaxUnpools[3]: unpooled(3),

	op.Stack: {composed: true, forward: func(x *Executor, c *op.Call) error {
		y := c.Out[0]
		d := dim(c.Args.(*op.DimArgs).Dim, y.Rank())
		for i, t := range c.In {
			if err := x.launch(kernel.Copy, []kernel.Tensor{x.at(y, y.Select(d, int64(i))), x.operand(t)}, nil); err != nil {
				return err
			}
		}
		return nil
	}},
}

var constantPad = linear{
	entries: moved(0, padded).entries,
	fill:    func(args any) float64 { return args.(*op.PadArgs).Value },
}

// unpooled puts the input where the indices of a pooling say, in planes of n
// dimensions; of several elements for one place the last counts. Its derivative
// reads there.
func unpooled(n int) row {
	each := func(out, in []int, index []float64, f func(to, from int)) {
		plane, window := numel(out[len(out)-n:]), numel(in[len(in)-n:])
		for from, at := range index {
			f(from/window*plane+int(at), from)
		}
	}
	check := func(a *aside, index []float64, plane int) bool {
		for _, at := range index {
			if at < 0 || int(at) >= plane {
				a.fail(outside(int(at), plane))
				return false
			}
		}
		return true
	}
	return asideRow(func(a *aside, c *op.Call) {
		x, index, size := a.get(c.In[0]), a.get(c.In[1]).v, ints(c.Out[0].Size)
		y := make([]float64, numel(size))
		if check(a, index, numel(size[len(size)-n:])) {
			each(size, x.size, index, func(to, from int) { y[to] = x.v[from] })
		}
		a.put(c.Out[0], y)
	}, func(a *aside, b *op.Back) {
		r, g, index := wanted(b, 0), a.get(b.Grads[0]), a.get(b.SavedIn[1]).v
		if r == nil {
			return
		}
		out := make([]float64, r.Numel())
		each(g.size, ints(r.Size), index, func(to, from int) { out[from] = g.v[to] })
		a.put(r, out)
	})
}

// affineGrid gives the coordinates of each position: a matrix of the batch times
// those of the base and a one.
func affineGrid(m *matrix) {
	a := m.args.(*op.AffineArgs)
	size := m.out[1 : len(m.out)-1]
	n := len(size)
	base := func(i, d int) float64 { // coordinate of position i in dimension d
		s := size[d]
		if s <= 1 {
			return 0
		}
		v := -1 + 2*float64(i)/float64(s-1)
		if !a.AlignCorners {
			v *= float64(s-1) / float64(s)
		}
		return v
	}
	pixels := numel(size)
	for k := range m.out[0] {
		walk(size, func(i int, at []int) {
			for row := range n {
				to := (k*pixels+i)*n + row
				for col := range n + 1 {
					w := 1.0
					if col < n {
						w = base(at[n-1-col], n-1-col)
					}
					m.emit(to, (k*n+row)*(n+1)+col, w)
				}
			}
		})
	}
}
