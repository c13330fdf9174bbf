package cpu

import (
	"github.com/memplan/memplan/internal/gemm"
	"github.com/memplan/memplan/internal/kernel"
)

// Convolutions are products of matrices (im2col): the windows of a block of
// output places are laid out as columns, over all images as if they were one, so
// that places side by side in an image are so in the matrix. A block has as many
// places as keep it in the cache.

// pixels is how many output places are taken together for windows of so many
// elements.
func pixels(depth int) int { return min(256, max(96, (1<<18)/max(depth, 1))) }

// few is how many tasks keep the processors busy; with less, work is divided
// further although something is then done twice.
const few = 8

// run is output places side by side in one row of an image.
type run struct {
	image  int
	at     [3]int // of the first place
	column int    // of the first place, in its block
	n      int
}

// runs are those of n places from one on.
func (c *convolution) runs(list []run, from, n int) []run {
	list = list[:0]
	for column := 0; column < n; {
		image, at := c.pixel(from + column)
		wide := min(c.out[2]-at[2], n-column)
		list = append(list, run{image, at, column, wide})
		column += wide
	}
	return list
}

// inRow are the places of a run whose window has its element w inside the image,
// from .. to counted from the run's first place.
func (c *convolution) inRow(r run, w int) (from, to int) {
	first, step := r.at[2]*c.stride[2]-c.padding[2]+w*c.dilation[2], c.stride[2]
	if first < 0 {
		from = (step - 1 - first) / step
	}
	if first < c.in[2] {
		to = (c.in[2] - first + step - 1) / step
	}
	to = min(to, r.n)
	return min(from, to), to
}

// overWindows calls f for each element k of the windows of channels from .. to and
// for each run: with the places of the run that have the element inside the image,
// from .. to, and where in the image that of the first one lies.
func overWindows(l *launch, c *convolution, channel, channels int, list []run, f func(k int, r run, from, to, at int)) {
	stride, k := l.spatialStride(c.x), 0
	type part struct{ from, to, at int }
	parts := make([]part, len(list)*c.size[2])
	for i, r := range list {
		for w := range c.size[2] {
			from, to := c.inRow(r, w)
			at := r.image*l.stride(c.x, 0) + ((r.at[2]+from)*c.stride[2]-c.padding[2]+w*c.dilation[2])*stride[2]
			parts[w*len(list)+i] = part{from, to, at}
		}
	}
	rows := make([]int, len(list)) // where the row of each run lies in a channel, -1: outside
	for ch := range channels {
		base := (channel + ch) * l.stride(c.x, 1)
		for d := range c.size[0] {
			for h := range c.size[1] {
				for i, r := range list {
					z, y := r.at[0]*c.stride[0]-c.padding[0]+d*c.dilation[0], r.at[1]*c.stride[1]-c.padding[1]+h*c.dilation[1]
					rows[i] = -1
					if z >= 0 && z < c.in[0] && y >= 0 && y < c.in[1] {
						rows[i] = base + z*stride[0] + y*stride[1]
					}
				}
				for w := range c.size[2] {
					for i, p := range parts[w*len(list):][:len(list)] {
						if rows[i] < 0 {
							p = part{}
						}
						f(k, list[i], p.from, p.to, rows[i]+p.at)
					}
					k++
				}
			}
		}
	}
}

// gather lays out the windows of channels from .. to as columns, each element of
// the windows as a row of n places.
func gather[T float](l *launch, c *convolution, to []T, channel, channels int, list []run, n int) {
	x, step := view[T](l, c.x), l.stride(c.x, 4)*c.stride[2]
	overWindows(l, c, channel, channels, list, func(k int, r run, from, until, at int) {
		out := to[k*n+r.column:][:r.n]
		for i := range out[:from] {
			out[i] = 0
		}
		if rest := out[until:]; len(rest) > 0 {
			clear(rest)
		}
		out = out[from:until]
		switch {
		case len(out) == 0:
		case step == 1:
			copy(out, x[at:at+len(out)])
		default:
			in := x[at : at+(len(out)-1)*step+1]
			for i := range out {
				out[i] = in[i*step]
			}
		}
	})
}

// scatter adds rows to where their windows are in the image: gather backwards.
func scatter[T float](l *launch, c *convolution, from []T, channel, channels int, list []run, n int) {
	x, step := view[T](l, c.x), l.stride(c.x, 4)*c.stride[2]
	overWindows(l, c, channel, channels, list, func(k int, r run, first, until, at int) {
		in := from[k*n+r.column:][first:until]
		switch {
		case len(in) == 0:
		case step == 1:
			out := x[at:][:len(in)]
			for i, v := range in {
				out[i] += v
			}
		default:
			out := x[at : at+(len(in)-1)*step+1]
			for i, v := range in {
				out[i*step] += v
			}
		}
	})
}

// overOutputs calls f for the runs of a block in some channels of an operand of the
// output's sizes: where in it the run's first place lies, and in a matrix of a row
// of n places for each channel.
func (c *convolution) overOutputs(l *launch, operand, channel, channels int, list []run, n int, f func(o, at, place, count int)) {
	stride := l.spatialStride(operand)
	for o := range channels {
		base := (channel + o) * l.stride(operand, 1)
		for _, r := range list {
			at := base + r.image*l.stride(operand, 0) + r.at[0]*stride[0] + r.at[1]*stride[1] + r.at[2]*stride[2]
			f(o, at, o*n+r.column, r.n)
		}
	}
}

// gradients are those of some channels of the output, as rows of n places.
func gradients[T float](l *launch, c *convolution, to []T, channel, channels int, list []run, n int) {
	g, step := view[T](l, c.y), l.stride(c.y, 4)
	c.overOutputs(l, c.y, channel, channels, list, n, func(_, at, place, count int) {
		out := to[place:][:count]
		if step == 1 {
			copy(out, g[at:at+count])
			return
		}
		for i := range out {
			out[i] = g[at+i*step]
		}
	})
}

func conv[T float](l *launch) error {
	c, err := l.newConvolution(1, 2, 0, 3)
	if err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	w, done := weights[T](l, c)
	defer done()
	y, step, bias := view[T](l, c.y), l.stride(c.y, 4), view[T](l, c.bias)
	total, width := c.n*volume(c.out), pixels(c.depth)
	blocks, parts, rows := (total+width-1)/width, 1, c.outputs
	if blocks*c.groups < few {
		rows = min(rows, partRows/3)
		parts = (c.outputs + rows - 1) / rows
	}
	parallel(c.groups*parts*blocks, 1, func(from, to int) {
		columns, doneColumns := borrow[T](width * c.depth)
		defer doneColumns()
		product, doneProduct := borrow[T](rows * width)
		defer doneProduct()
		var list []run
		for task := from; task < to; task++ {
			group, part, pixel := task/(parts*blocks), task/blocks%parts, task%blocks*width
			n, outputs := min(width, total-pixel), min(rows, c.outputs-part*rows)
			channel := group*c.outputs + part*rows
			out := matrix[T]{product, outputs, n, n, 1}
			clear(product[:outputs*n])
			list = c.runs(list, pixel, n)
			if c.depth > 0 {
				gather(l, c, columns, group*c.inputs, c.inputs, list, n)
				dot(1, matrix[T]{w.at(channel, 0), outputs, c.depth, c.depth, 1}, matrix[T]{columns, c.depth, n, n, 1}.transposed(), out)
			}
			c.overOutputs(l, c.y, channel, outputs, list, n, func(o, at, place, count int) {
				b := T(0)
				if bias != nil {
					b = bias[(channel+o)*l.stride(c.bias, 0)]
				}
				to := y[at : at+(count-1)*step+1]
				for i, v := range product[place : place+count] {
					to[i*step] = v + b
				}
			})
		}
	})
	return nil
}

// convInputGrad computes gradients of windows as rows and adds each to where
// its window was. A task has some images and channels to itself.
func convInputGrad[T float](l *launch) error {
	c, err := l.newConvolution(0, 2, 1, 3)
	if err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	w, done := weights[T](l, c)
	defer done()
	box := volume(c.size)
	width := pixels(c.outputs)
	images := min(c.n, max(1, width/max(1, volume(c.out))))
	channels := min(c.inputs, max(1, 256/box))
	parts, batches := (c.inputs+channels-1)/channels, (c.n+images-1)/images
	parallel(c.groups*parts*batches, 1, func(from, to int) {
		rows, doneRows := borrow[T](width * c.outputs)
		defer doneRows()
		product, doneProduct := borrow[T](width * channels * box)
		defer doneProduct()
		var list []run
		for task := from; task < to; task++ {
			group, part, image := task/(parts*batches), task/batches%parts, task%batches*images
			count, channel := min(images, c.n-image), part*channels
			wide := min(channels, c.inputs-channel)
			startImages[T](l, c, group*c.inputs+channel, wide, image, count)
			last := (image + count) * volume(c.out)
			for pixel := image * volume(c.out); pixel < last && c.outputs > 0; pixel += width {
				n := min(width, last-pixel)
				list = c.runs(list, pixel, n)
				gradients(l, c, rows, group*c.outputs, c.outputs, list, n)
				out := matrix[T]{product, wide * box, n, n, 1}
				clear(product[:wide*box*n])
				weight := matrix[T]{w.at(group*c.outputs, channel*box), c.outputs, wide * box, c.depth, 1}
				dot(1, weight.transposed(), matrix[T]{rows, c.outputs, n, n, 1}.transposed(), out)
				scatter(l, c, product, group*c.inputs+channel, wide, list, n)
			}
		}
	})
	return nil
}

// startImages fills some channels of some images with zeros or a bias.
func startImages[T float](l *launch, c *convolution, channel, channels, image, images int) {
	x, stride, bias := view[T](l, c.x), l.spatialStride(c.x), view[T](l, c.bias)
	for n := range images {
		for ch := range channels {
			v := T(0)
			if bias != nil {
				v = bias[(channel+ch)*l.stride(c.bias, 0)]
			}
			base := (image+n)*l.stride(c.x, 0) + (channel+ch)*l.stride(c.x, 1)
			for d := range c.in[0] {
				for h := range c.in[1] {
					row := x[base+d*stride[0]+h*stride[1]:]
					for w := range c.in[2] {
						row[w*stride[2]] = v
					}
				}
			}
		}
	}
}

// convWeightGrad adds, block of output places by block, the products of
// gradients and windows. A task has some channels to itself.
func convWeightGrad[T float](l *launch) error {
	c, err := l.newConvolution(2, 0, 1, -1)
	if err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	const width = 2 * gemm.Depth
	elements := weightPlaces(l, c)
	gw, box, total := view[T](l, c.w), volume(c.size), c.n*volume(c.out)
	channels := min(c.inputs, max(1, 256/box))
	parts, outputParts, rows := (c.inputs+channels-1)/channels, 1, c.outputs
	if c.groups*parts < few {
		rows = min(rows, partRows/3)
		outputParts = (c.outputs + rows - 1) / rows
	}
	parallel(c.groups*parts*outputParts, 1, func(from, to int) {
		columns, doneColumns := borrow[T](width * channels * box)
		defer doneColumns()
		grads, doneGrads := borrow[T](rows * width)
		defer doneGrads()
		product, doneProduct := borrow[T](rows * channels * box)
		defer doneProduct()
		var list []run
		for task := from; task < to; task++ {
			group, part, slice := task/(parts*outputParts), task/outputParts%parts, task%outputParts
			channel, output := part*channels, slice*rows
			wide, high := min(channels, c.inputs-channel), min(rows, c.outputs-output)
			out := matrix[T]{product, high, wide * box, wide * box, 1}
			clear(product[:high*wide*box])
			for pixel := 0; pixel < total; pixel += width {
				n := min(width, total-pixel)
				list = c.runs(list, pixel, n)
				gradients(l, c, grads, group*c.outputs+output, high, list, n)
				gather(l, c, columns, group*c.inputs+channel, wide, list, n)
				dot(1, matrix[T]{grads, high, n, n, 1}, matrix[T]{columns, wide * box, n, n, 1}, out)
			}
			for o := range high {
				to := gw[(group*c.outputs+output+o)*l.stride(c.w, 0)+channel*l.stride(c.w, 1):]
				for k, v := range product[o*wide*box : (o+1)*wide*box] {
					to[elements[k]] = v
				}
			}
		}
	})
	return nil
}

// convRows are convolutions.
var convRows = map[*kernel.Kernel]row{
	kernel.Conv:           floats(conv[float32], conv[float64]),
	kernel.ConvInputGrad:  floats(convInputGrad[float32], convInputGrad[float64]),
	kernel.ConvWeightGrad: floats(convWeightGrad[float32], convWeightGrad[float64]),
}
