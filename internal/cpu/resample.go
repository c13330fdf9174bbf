package cpu

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// tap says which two elements of a dimension, and in which shares, one of the larger
// image is made of.
type tap struct {
	at    [2]int
	share [2]float64
}

// taps are those of the three dimensions; x and y are images.
func (l *launch) taps(x, y int) (out [3][]tap) {
	in, n := l.spatial(x), l.spatial(y)
	for d := range out {
		step := l.call.F[d]
		for i := range n[d] {
			place := step * float64(i)
			if l.call.I[0] == 0 {
				place = max(math.FMA(step, float64(i)+0.5, -0.5), 0)
			}
			first := min(int(place), in[d]-1)
			share := min(place-float64(first), 1)
			out[d] = append(out[d], tap{[2]int{first, min(first+1, in[d]-1)}, [2]float64{1 - share, share}})
		}
	}
	return out
}

// mixed calls f for the elements of x that the one of y at a place is made of.
func mixed(t *[3][]tap, o [3]int, f func(i [3]int, share float64)) {
	d, h, w := &t[0][o[0]], &t[1][o[1]], &t[2][o[2]]
	for a, sa := range d.share {
		for b, sb := range h.share {
			for c, sc := range w.share {
				if share := sa * sb * sc; share != 0 {
					f([3]int{d.at[a], h.at[b], w.at[c]}, share)
				}
			}
		}
	}
}

// resample is aten/src/ATen/native/cpu/UpSampleKernel.cpp.
func resample[T float](l *launch) error {
	if err := l.poolShapes(1, 0); err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	y, x, out, t := imagesOf[T](l, 0), imagesOf[T](l, 1), l.spatial(0), l.taps(1, 0)
	l.planes(8*volume(out), func(n, c int) {
		y, x := y.plane(n, c), x.plane(n, c)
		for p := range volume(out) {
			o, sum := place(out, p), 0.0
			mixed(&t, o, func(i [3]int, share float64) { sum += share * float64(*x.at(i)) })
			*y.at(o) = T(sum)
		}
	})
	return nil
}

func resampleGrad[T float](l *launch) error {
	if err := l.poolShapes(0, 1); err != nil || l.call.T[0].Numel() == 0 {
		return err
	}
	gx, g, in, out, t := imagesOf[T](l, 0), imagesOf[T](l, 1), l.spatial(0), l.spatial(1), l.taps(0, 1)
	l.planes(volume(in)+8*volume(out), func(n, c int) {
		gx, g := gx.plane(n, c), g.plane(n, c)
		for i := range volume(in) {
			*gx.at(place(in, i)) = 0
		}
		for p := range volume(out) {
			o := place(out, p)
			v := float64(*g.at(o))
			mixed(&t, o, func(i [3]int, share float64) { *gx.at(i) += T(share * v) })
		}
	})
	return nil
}

// resampleRows resize images.
var resampleRows = map[*kernel.Kernel]row{
	kernel.Resample:     floats(resample[float32], resample[float64]),
	kernel.ResampleGrad: floats(resampleGrad[float32], resampleGrad[float64]),
}
