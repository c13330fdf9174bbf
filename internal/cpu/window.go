package cpu

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// windows are those of a convolution or of pooling: for each place of the
// output a box of places in the input, by depth, height and width.
type windows struct {
	in, out, size, stride, padding, dilation [3]int
}

// spatial are the last three sizes of an operand [N, C, D, H, W].
func (l *launch) spatial(operand int) [3]int {
	return [3]int{l.size(operand, 2), l.size(operand, 3), l.size(operand, 4)}
}

// spatialStride are the strides of those.
func (l *launch) spatialStride(operand int) [3]int {
	return [3]int{l.stride(operand, 2), l.stride(operand, 3), l.stride(operand, 4)}
}

// integersNamed are three numbers of the call; fill where it has none.
func (l *launch) integersNamed(name string, fill int) [3]int {
	out := [3]int{fill, fill, fill}
	for i, n := range l.call.Kernel.Ints {
		for d, axis := range [3]string{"_d", "_h", "_w"} {
			if n == name+axis {
				out[d] = int(l.call.I[i])
			}
		}
	}
	return out
}

// newWindows are those of a call over images of operand in to those of out; size
// is that of a window.
func (l *launch) newWindows(in, out int, size [3]int) (*windows, error) {
	w := &windows{l.spatial(in), l.spatial(out), size, l.integersNamed("stride", 1), l.integersNamed("padding", 0), l.integersNamed("dilation", 1)}
	for d := range 3 {
		if w.size[d] < 1 || w.stride[d] < 1 || w.dilation[d] < 1 || w.padding[d] < 0 {
			return nil, fmt.Errorf("a window of %v with stride %v, padding %v and dilation %v", w.size, w.stride, w.padding, w.dilation)
		}
	}
	return w, nil
}

// volume is the number of places of a box.
func volume(size [3]int) int { return size[0] * size[1] * size[2] }

// place splits a number below volume(size).
func place(size [3]int, n int) [3]int {
	return [3]int{n / (size[1] * size[2]), n / size[2] % size[1], n % size[2]}
}

// start is where the window of an output begins in the input, perhaps in the
// padding.
func (w *windows) start(o [3]int) (s [3]int) {
	for d := range 3 {
		s[d] = o[d]*w.stride[d] - w.padding[d]
	}
	return s
}

// inside is the part of a window, from .. to, that lies in the image.
func (w *windows) inside(start [3]int) (from, to [3]int) {
	for d := range 3 {
		if start[d] < 0 {
			from[d] = (-start[d] + w.dilation[d] - 1) / w.dilation[d]
		}
		to[d] = min(w.size[d], (w.in[d]-start[d]+w.dilation[d]-1)/w.dilation[d])
		if w.in[d] <= start[d] {
			to[d] = 0
		}
		from[d] = min(from[d], max(to[d], 0))
	}
	return from, to
}

// reach is the places of the input, from .. to, that a window has in a dimension.
type reach struct{ from, to int }

// reaches are those of each place of the output in a dimension; places lie a dilation apart.
func (w *windows) reaches(dim int) []reach {
	out := make([]reach, w.out[dim])
	for o := range out {
		var at [3]int
		at[dim] = o
		start := w.start(at)
		from, to := w.inside(start)
		out[o] = reach{start[dim] + from[dim]*w.dilation[dim], start[dim] + to[dim]*w.dilation[dim]}
	}
	return out
}

// fiveDimensions fails unless operands are images or their weights.
func (l *launch) fiveDimensions(operands ...int) error {
	for _, o := range operands {
		if l.call.T[o].Size.Len() != 5 {
			return l.wrongRank(o, 5)
		}
	}
	return nil
}

// convolution is a call of one of the three kernels: the places of image, weight
// and result among its operands, and their sizes.
type convolution struct {
	*windows
	x, w, y, bias          int
	n, groups              int
	inputs, outputs, depth int // channels of a group; elements of a window over the inputs
}

func (l *launch) newConvolution(x, w, y, bias int) (*convolution, error) {
	if err := l.fiveDimensions(x, w, y); err != nil {
		return nil, err
	}
	win, err := l.newWindows(x, y, l.spatial(w))
	if err != nil {
		return nil, err
	}
	c := &convolution{windows: win, x: x, w: w, y: y, bias: bias, n: l.size(x, 0), groups: int(l.call.I[len(l.call.I)-1])}
	if c.groups < 1 || l.size(x, 1)%c.groups != 0 || l.size(y, 1)%c.groups != 0 {
		return nil, fmt.Errorf("%d and %d channels are not divided by %d groups", l.size(x, 1), l.size(y, 1), c.groups)
	}
	c.inputs, c.outputs = l.size(x, 1)/c.groups, l.size(y, 1)/c.groups
	c.depth = c.inputs * volume(c.size)
	channels := l.size(0, 1)
	err = first(l.shape(y, c.n, c.groups*c.outputs, c.out[0], c.out[1], c.out[2]),
		l.shape(w, c.groups*c.outputs, c.inputs, c.size[0], c.size[1], c.size[2]))
	if bias >= 0 {
		err = first(err, l.shape(bias, channels))
	}
	return c, err
}

// weights are the weights of all groups with those of a channel side by side.
func weights[T float](l *launch, c *convolution) (matrix[T], func()) {
	rows := c.groups * c.outputs
	if t := (tensor.Layout{Size: l.call.T[c.w].Size, Stride: l.call.T[c.w].Stride}); t.IsContiguous() {
		return matrix[T]{view[T](l, c.w), rows, c.depth, c.depth, 1}, func() {}
	}
	to, done := borrow[T](rows * c.depth)
	from, elements := view[T](l, c.w), weightPlaces(l, c)
	for o := range rows {
		for k, at := range elements {
			to[o*c.depth+k] = from[o*l.stride(c.w, 0)+at]
		}
	}
	return matrix[T]{to, rows, c.depth, c.depth, 1}, done
}

// weightPlaces are where the weights of one output lie, from its first one on.
func weightPlaces(l *launch, c *convolution) []int {
	out, stride, box := make([]int, c.depth), l.spatialStride(c.w), volume(c.size)
	for k := range out {
		p := place(c.size, k%box)
		out[k] = k/box*l.stride(c.w, 1) + p[0]*stride[0] + p[1]*stride[1] + p[2]*stride[2]
	}
	return out
}

// pixel is a place of the output, counted over all images.
func (c *convolution) pixel(p int) (image int, at [3]int) {
	box := volume(c.out)
	return p / box, place(c.out, p%box)
}
