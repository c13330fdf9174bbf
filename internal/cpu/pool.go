package cpu

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/memplan/memplan/internal/kernel"
)

// images is an operand [N, C, D, H, W].
type images[T any] struct {
	data   []T
	n, c   int // strides
	stride [3]int
}

func imagesOf[T any](l *launch, operand int) images[T] {
	return images[T]{view[T](l, operand), l.stride(operand, 0), l.stride(operand, 1), l.spatialStride(operand)}
}

// plane is one channel of one image.
func (m images[T]) plane(n, c int) plane[T] { return plane[T]{m.data[n*m.n+c*m.c:], m.stride} }

type plane[T any] struct {
	data   []T
	stride [3]int
}

func (p plane[T]) at(i [3]int) *T {
	return &p.data[i[0]*p.stride[0]+i[1]*p.stride[1]+i[2]*p.stride[2]]
}

// planes calls f for each channel of each image.
func (l *launch) planes(size int, f func(n, c int)) {
	channels := l.size(0, 1)
	parallel(l.size(0, 0)*channels, channelGrain(size), func(from, to int) {
		for i := from; i < to; i++ {
			f(i/channels, i%channels)
		}
	})
}

// poolShapes checks the operands of a pooling: small and large are images, all
// of those in like are of small's sizes.
func (l *launch) poolShapes(large, small int, like ...int) error {
	if err := l.fiveDimensions(large, small); err != nil {
		return err
	}
	s, b := l.spatial(small), l.spatial(large)
	err := first(l.shape(large, l.size(small, 0), l.size(small, 1), b[0], b[1], b[2]))
	for _, o := range like {
		err = first(err, l.shape(o, l.size(small, 0), l.size(small, 1), s[0], s[1], s[2]))
	}
	return err
}

// maxPool is aten/src/ATen/native/cpu/MaxPoolKernel.cpp: of several NaN the last
// one is the largest.
func maxPool[T float](l *launch) error {
	err := l.poolShapes(2, 0, 1)
	if err != nil {
		return err
	}
	w, err := l.newWindows(2, 0, l.integersNamed("kernel", 1))
	if err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	if l.call.T[2].Numel() == 0 {
		return fmt.Errorf("operand x has no elements")
	}
	y, index, x := imagesOf[T](l, 0), imagesOf[int64](l, 1), imagesOf[T](l, 2)
	reaches := [3][]reach{w.reaches(0), w.reaches(1), w.reaches(2)}
	l.planes(volume(w.out)*volume(w.size), func(n, c int) {
		y, index, x := y.plane(n, c), index.plane(n, c), x.plane(n, c)
		for od, sd := range reaches[0] {
			for oh, sh := range reaches[1] {
				for ow, sw := range reaches[2] {
					most, where := T(math.Inf(-1)), -1
					for i := sd.from; i < sd.to; i += w.dilation[0] {
						for j := sh.from; j < sh.to; j += w.dilation[1] {
							row, before := x.data[i*x.stride[0]+j*x.stride[1]:], (i*w.in[1]+j)*w.in[2]
							for k := sw.from; k < sw.to; k += w.dilation[2] {
								if v := row[k*x.stride[2]]; v > most || v != v || where < 0 {
									most, where = v, before+k
								}
							}
						}
					}
					o := [3]int{od, oh, ow}
					*y.at(o), *index.at(o) = most, int64(where)
				}
			}
		}
	})
	return nil
}

func maxPoolGrad[T float](l *launch) error {
	if err := first(l.poolShapes(0, 1, 2)); err != nil {
		return err
	}
	gx, g, index, in, out := imagesOf[T](l, 0), imagesOf[T](l, 1), imagesOf[int64](l, 2), l.spatial(0), l.spatial(1)
	if l.call.T[0].Numel() == 0 {
		return nil
	}
	var wrong atomic.Pointer[int64]
	whole := gx.stride == [3]int{in[1] * in[2], in[2], 1} // a place is where its element lies
	l.planes(volume(in), func(n, c int) {
		gx, g, index := gx.plane(n, c), g.plane(n, c), index.plane(n, c)
		if whole {
			clear(gx.data[:volume(in)])
		} else {
			for i := range volume(in) {
				*gx.at(place(in, i)) = 0
			}
		}
		for d := range out[0] {
			for h := range out[1] {
				for w := range out[2] {
					o := [3]int{d, h, w}
					i := *index.at(o)
					switch {
					case i < 0 || i >= int64(volume(in)):
						wrong.Store(&i)
					case whole:
						gx.data[i] += *g.at(o)
					default:
						*gx.at(place(in, int(i))) += *g.at(o)
					}
				}
			}
		}
	})
	return outOfRange(wrong.Load(), volume(in))
}

// outOfRange is the error of an index, if there is a wrong one.
func outOfRange(index *int64, n int) error {
	if index == nil {
		return nil
	}
	return fmt.Errorf("index %d is out of range [0, %d)", *index, n)
}

// averages calls f for each place of an average with its box in the image and
// what the sum is divided by.
type averages func(l *launch, large, small int) (func(o [3]int) (from, to [3]int, by float64), error)

// fixedAverages are those of aten/src/ATen/native/cpu/AvgPoolKernel.cpp: a window
// counts as large as it is up to where the padding ends.
func fixedAverages(l *launch, large, small int) (func(o [3]int) (from, to [3]int, by float64), error) {
	w, err := l.newWindows(large, small, l.integersNamed("kernel", 1))
	if err != nil {
		return nil, err
	}
	n := len(l.call.I)
	include, divisor := l.call.I[n-2] != 0, float64(l.call.I[n-1])
	return func(o [3]int) (from, to [3]int, by float64) {
		start := w.start(o)
		padded, inside := 1, 1
		for d := range 3 {
			end := min(start[d]+w.size[d], w.in[d]+w.padding[d])
			padded *= end - start[d]
			from[d], to[d] = max(start[d], 0), min(end, w.in[d])
			inside *= max(0, to[d]-from[d])
		}
		switch {
		case divisor != 0:
			by = divisor
		case include:
			by = float64(padded)
		default:
			by = float64(inside)
		}
		return from, to, by
	}, nil
}

// adaptiveAverages are those of AdaptiveAvgPoolKernel.cpp.
func adaptiveAverages(l *launch, large, small int) (func(o [3]int) (from, to [3]int, by float64), error) {
	in, out := l.spatial(large), l.spatial(small)
	return func(o [3]int) (from, to [3]int, by float64) {
		by = 1
		for d := range 3 {
			from[d], to[d] = o[d]*in[d]/out[d], ((o[d]+1)*in[d]+out[d]-1)/out[d]
			by *= float64(to[d] - from[d])
		}
		return from, to, by
	}, nil
}

// box calls f for each place from .. to.
func box(from, to [3]int, f func(i [3]int)) {
	for d := from[0]; d < to[0]; d++ {
		for h := from[1]; h < to[1]; h++ {
			for w := from[2]; w < to[2]; w++ {
				f([3]int{d, h, w})
			}
		}
	}
}

func avgPool[T float](of averages) runner {
	return func(l *launch) error {
		if err := l.poolShapes(1, 0); err != nil {
			return err
		}
		boxes, err := of(l, 1, 0)
		if err != nil || l.call.T[0].Numel() == 0 {
			return err
		}
		y, x, out := imagesOf[T](l, 0), imagesOf[T](l, 1), l.spatial(0)
		l.planes(volume(out)+volume(l.spatial(1)), func(n, c int) {
			for p := range volume(out) {
				o, sum := place(out, p), 0.0
				from, to, by := boxes(o)
				box(from, to, func(i [3]int) { sum += float64(*x.plane(n, c).at(i)) })
				if by != 0 { // else the window lies in the padding
					sum /= by
				}
				*y.plane(n, c).at(o) = T(sum)
			}
		})
		return nil
	}
}

func avgPoolGrad[T float](of averages) runner {
	return func(l *launch) error {
		if err := l.poolShapes(0, 1); err != nil {
			return err
		}
		boxes, err := of(l, 0, 1)
		if err != nil || l.call.T[0].Numel() == 0 {
			return err
		}
		gx, g, in, out := imagesOf[T](l, 0), imagesOf[T](l, 1), l.spatial(0), l.spatial(1)
		l.planes(volume(in)+volume(out), func(n, c int) {
			gx := gx.plane(n, c)
			for i := range volume(in) {
				*gx.at(place(in, i)) = 0
			}
			for p := range volume(out) {
				o := place(out, p)
				from, to, by := boxes(o)
				v := T(float64(*g.plane(n, c).at(o)) / by)
				box(from, to, func(i [3]int) { *gx.at(i) += v })
			}
		})
		return nil
	}
}

// poolRows and averageRows are pooling.
var (
	poolRows = map[*kernel.Kernel]row{
		kernel.MaxPool:     floats(maxPool[float32], maxPool[float64]),
		kernel.MaxPoolGrad: floats(maxPoolGrad[float32], maxPoolGrad[float64]),
	}
	averageRows = map[*kernel.Kernel]row{
		kernel.AvgPool:             floats(avgPool[float32](fixedAverages), avgPool[float64](fixedAverages)),
		kernel.AvgPoolGrad:         floats(avgPoolGrad[float32](fixedAverages), avgPoolGrad[float64](fixedAverages)),
		kernel.AdaptiveAvgPool:     floats(avgPool[float32](adaptiveAverages), avgPool[float64](adaptiveAverages)),
		kernel.AdaptiveAvgPoolGrad: floats(avgPoolGrad[float32](adaptiveAverages), avgPoolGrad[float64](adaptiveAverages)),
	}
)
