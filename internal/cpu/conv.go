package cpu

import (
	"github.com/memplan/memplan/internal/gemm"
	"github.com/memplan/memplan/internal/kernel"
)

// Convolutions are products of matrices (im2col): the windows of a block of
// output places are laid out as rows, over all images as if they were one. A
// block has as many places as keep it in the cache.

// pixels is how many output places are taken together for windows of so many
// elements.
func pixels(depth int) int { return min(256, max(32, (1<<17)/max(depth, 1))) }

// few is how many tasks keep the processors busy; with less, work is divided
// further although something is then done twice.
const few = 8

// gather lays out the windows of channels from .. to of a group as rows.
func gather[T float](l *launch, c *convolution, to []T, group, fromChannel, channels, fromPixel, n int) {
	x, stride := view[T](l, c.x), l.spatialStride(c.x)
	step, box := l.stride(c.x, 1), volume(c.size)
	for p := range n {
		image, at := c.pixel(fromPixel + p)
		start := c.start(at)
		from, until := c.inside(start)
		row := to[p*channels*box:][:channels*box]
		if from != [3]int{} || until != c.size {
			clear(row)
		}
		base := image*l.stride(c.x, 0) + (group*c.inputs+fromChannel)*step
		sw := stride[2] * c.dilation[2]
		for ch := range channels {
			for d := from[0]; d < until[0]; d++ {
				for h := from[1]; h < until[1]; h++ {
					at := base + (start[0]+d*c.dilation[0])*stride[0] + (start[1]+h*c.dilation[1])*stride[1] + start[2]*stride[2]
					out := row[ch*box+(d*c.size[1]+h)*c.size[2]:]
					for w := from[2]; w < until[2]; w++ {
						out[w] = x[at+w*sw]
					}
				}
			}
			base += step
		}
	}
}

// places are where output places lie in an operand, in its first channel of a
// group.
func places(l *launch, c *convolution, operand, channel, fromPixel int, to []int) {
	stride := l.spatialStride(operand)
	for p := range to {
		image, at := c.pixel(fromPixel + p)
		to[p] = image*l.stride(operand, 0) + channel*l.stride(operand, 1) + at[0]*stride[0] + at[1]*stride[1] + at[2]*stride[2]
	}
}

func conv[T float](l *launch) error {
	c, err := l.newConvolution(1, 2, 0, 3)
	if err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	w, done := weights[T](l, c)
	defer done()
	y, step, bias := view[T](l, c.y), l.stride(c.y, 1), view[T](l, c.bias)
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
		at := make([]int, width)
		for task := from; task < to; task++ {
			group, part, pixel := task/(parts*blocks), task/blocks%parts, task%blocks*width
			n, outputs := min(width, total-pixel), min(rows, c.outputs-part*rows)
			channel := group*c.outputs + part*rows
			out := matrix[T]{product, outputs, n, n, 1}
			clear(product[:outputs*n])
			if c.depth > 0 {
				gather(l, c, columns, group, 0, c.inputs, pixel, n)
				dot(1, matrix[T]{w.at(channel, 0), outputs, c.depth, c.depth, 1}, matrix[T]{columns, n, c.depth, c.depth, 1}, out)
			}
			places(l, c, c.y, channel, pixel, at[:n])
			for o := range outputs {
				b := T(0)
				if bias != nil {
					b = bias[(channel+o)*l.stride(c.bias, 0)]
				}
				for p, v := range product[o*n : (o+1)*n] {
					y[at[p]+o*step] = v + b
				}
			}
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
	turned, doneTurned := borrow[T](c.groups * c.depth * c.outputs) // [group, window, output]
	defer doneTurned()
	parallel(c.groups, 1, func(from, to int) {
		for g := from; g < to; g++ {
			if c.outputs > 0 && c.depth > 0 {
				m := matrix[T]{w.at(g*c.outputs, 0), c.outputs, c.depth, c.depth, 1}.transposed()
				m.copyTo(turned[g*c.depth*c.outputs:], 0, c.depth)
			}
		}
	})
	g, step, box := view[T](l, c.y), l.stride(c.y, 1), volume(c.size)
	width := pixels(c.outputs)
	images := min(c.n, max(1, width/max(1, volume(c.out))))
	channels := min(c.inputs, max(1, 256/box))
	parts, batches := (c.inputs+channels-1)/channels, (c.n+images-1)/images
	parallel(c.groups*parts*batches, 1, func(from, to int) {
		rows, doneRows := borrow[T](width * c.outputs)
		defer doneRows()
		product, doneProduct := borrow[T](width * channels * box)
		defer doneProduct()
		at := make([]int, width)
		for task := from; task < to; task++ {
			group, part, image := task/(parts*batches), task/batches%parts, task%batches*images
			count, channel := min(images, c.n-image), part*channels
			wide := min(channels, c.inputs-channel)
			startImages[T](l, c, group*c.inputs+channel, wide, image, count)
			last := (image + count) * volume(c.out)
			for pixel := image * volume(c.out); pixel < last && c.outputs > 0; pixel += width {
				n := min(width, last-pixel)
				places(l, c, c.y, group*c.outputs, pixel, at[:n])
				for p, from := range at[:n] {
					row := rows[p*c.outputs : (p+1)*c.outputs]
					for o := range row {
						row[o] = g[from+o*step]
					}
				}
				out := matrix[T]{product, n, wide * box, wide * box, 1}
				clear(product[:n*wide*box])
				dot(1, matrix[T]{rows, n, c.outputs, c.outputs, 1},
					matrix[T]{turned[(group*c.depth+channel*box)*c.outputs:], wide * box, c.outputs, c.outputs, 1}, out)
				scatter(l, c, product, group*c.inputs+channel, wide, pixel, n)
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

// scatter adds rows to where their windows are in the image: gather backwards.
func scatter[T float](l *launch, c *convolution, rows []T, channel, channels, fromPixel, n int) {
	x, stride := view[T](l, c.x), l.spatialStride(c.x)
	step, box, sw := l.stride(c.x, 1), volume(c.size), l.spatialStride(c.x)[2]*c.dilation[2]
	for p := range n {
		image, at := c.pixel(fromPixel + p)
		start := c.start(at)
		from, until := c.inside(start)
		base := image*l.stride(c.x, 0) + channel*step
		for ch := range channels {
			row := rows[(p*channels+ch)*box:][:box]
			for d := from[0]; d < until[0]; d++ {
				for h := from[1]; h < until[1]; h++ {
					at := base + (start[0]+d*c.dilation[0])*stride[0] + (start[1]+h*c.dilation[1])*stride[1] + start[2]*stride[2]
					in := row[(d*c.size[1]+h)*c.size[2]:]
					for w := from[2]; w < until[2]; w++ {
						x[at+w*sw] += in[w]
					}
				}
			}
			base += step
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
	g, gw, box, total := view[T](l, c.y), view[T](l, c.w), volume(c.size), c.n*volume(c.out)
	channels := min(c.inputs, max(1, 256/box))
	parts, outputParts, rows := (c.inputs+channels-1)/channels, 1, c.outputs
	if c.groups*parts < few {
		rows = min(rows, partRows/3)
		outputParts = (c.outputs + rows - 1) / rows
	}
	parallel(c.groups*parts*outputParts, 1, func(from, to int) {
		windows, doneWindows := borrow[T](width * channels * box)
		defer doneWindows()
		columns, doneColumns := borrow[T](width * channels * box)
		defer doneColumns()
		grads, doneGrads := borrow[T](rows * width)
		defer doneGrads()
		product, doneProduct := borrow[T](rows * channels * box)
		defer doneProduct()
		at := make([]int, width)
		for task := from; task < to; task++ {
			group, part, slice := task/(parts*outputParts), task/outputParts%parts, task%outputParts
			channel, output := part*channels, slice*rows
			wide, high := min(channels, c.inputs-channel), min(rows, c.outputs-output)
			out := matrix[T]{product, high, wide * box, wide * box, 1}
			clear(product[:high*wide*box])
			for pixel := 0; pixel < total; pixel += width {
				n := min(width, total-pixel)
				places(l, c, c.y, group*c.outputs+output, pixel, at[:n])
				for o := range high {
					row, step := grads[o*n:(o+1)*n], o*l.stride(c.y, 1)
					for p, from := range at[:n] {
						row[p] = g[from+step]
					}
				}
				gather(l, c, windows, group, channel, wide, pixel, n)
				matrix[T]{windows, n, wide * box, wide * box, 1}.transposed().copyTo(columns, 0, wide*box)
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
