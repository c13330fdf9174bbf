// Package digits draws images of handwritten-looking digits, to try a training on where no
// data set is at hand. They are synthetic: each is the strokes of a digit, bent, turned,
// sheared, moved and drawn with a pen of some width, with noise. For tests and tools.
package digits

import (
	"encoding/binary"
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// Side is the width and height of an image in pixels.
const Side = 28

// point is a place in a square from 0 to 1, to the right and down.
type point struct{ x, y float64 }

// strokes are the lines of each digit.
var strokes = [10][][]point{
	{ring(0.5, 0.5, 0.24, 0.36, 0, 360)},
	{{{0.38, 0.28}, {0.54, 0.14}, {0.54, 0.86}}},
	{append(ring(0.5, 0.34, 0.22, 0.2, 180, 395), point{0.28, 0.85}, point{0.74, 0.85})},
	{append(ring(0.46, 0.32, 0.22, 0.18, 200, 450), ring(0.46, 0.67, 0.25, 0.18, 270, 520)...)},
	{{{0.6, 0.14}, {0.26, 0.6}, {0.76, 0.6}}, {{0.6, 0.36}, {0.6, 0.88}}},
	{append([]point{{0.72, 0.15}, {0.35, 0.15}, {0.31, 0.47}}, ring(0.48, 0.63, 0.24, 0.21, 230, 510)...)},
	{append([]point{{0.62, 0.13}, {0.4, 0.35}}, ring(0.5, 0.65, 0.22, 0.21, 190, 560)...)},
	{{{0.26, 0.16}, {0.74, 0.16}, {0.44, 0.87}}},
	{ring(0.5, 0.32, 0.19, 0.18, 90, 450), ring(0.5, 0.68, 0.23, 0.19, 270, 630)},
	{append(ring(0.48, 0.35, 0.21, 0.21, 0, 360), point{0.69, 0.4}, point{0.58, 0.87})},
}

// ring are points on an ellipse between two angles in degrees, from the right downwards.
func ring(x, y, a, b, from, to float64) []point {
	const step = 15
	var out []point
	for d := from; d <= to; d += step {
		sin, cos := math.Sincos(d * math.Pi / 180)
		out = append(out, point{x + a*cos, y + b*sin})
	}
	return out
}

// Draw returns n images of Side×Side bytes, row by row, and the digit of each. The same
// seed gives the same.
func Draw(n int, seed uint64) (images, labels []byte) {
	images, labels = make([]byte, n*Side*Side), make([]byte, n)
	for i := range n {
		r := kernel.NewStream(seed<<32 ^ uint64(i))
		labels[i] = byte(r.Below(10))
		draw(images[i*Side*Side:(i+1)*Side*Side], strokes[labels[i]], r)
	}
	return images, labels
}

// within is a random number between -a and a.
func within(r *kernel.Stream, a float64) float64 { return a * (2*r.Uniform() - 1) }

func draw(image []byte, lines [][]point, r *kernel.Stream) {
	sin, cos := math.Sincos(within(r, 0.25))
	shear, width, height := within(r, 0.25), 1+within(r, 0.2), 1+within(r, 0.15)
	dx, dy := within(r, 0.08), within(r, 0.08)
	pen := 0.035 + 0.03*r.Uniform()
	wave, phase, bend := 2+4*r.Uniform(), 2*math.Pi*r.Uniform(), 0.03*r.Uniform()
	noise := 20 * r.Uniform()
	moved := func(p point) point {
		x, y := (p.x-0.5)*width, (p.y-0.5)*height
		x += shear*y + bend*math.Sin(wave*y*2+phase)
		y += bend * math.Sin(wave*x*2-phase)
		return point{0.5 + dx + cos*x - sin*y, 0.5 + dy + sin*x + cos*y}
	}
	var list [][2]point
	for _, l := range lines {
		for i := 1; i < len(l); i++ {
			list = append(list, [2]point{moved(l[i-1]), moved(l[i])})
		}
	}
	for i := range image {
		p := point{(float64(i%Side) + 0.5) / Side, (float64(i/Side) + 0.5) / Side}
		near := math.Inf(1)
		for _, s := range list {
			near = min(near, distance(p, s[0], s[1]))
		}
		ink := 255*min(max((pen-near)*Side+0.5, 0), 1) + within(r, noise)
		image[i] = byte(min(max(ink, 0), 255))
	}
}

// distance is that of a point from a line between two.
func distance(p, a, b point) float64 {
	ux, uy := b.x-a.x, b.y-a.y
	t := min(max(((p.x-a.x)*ux+(p.y-a.y)*uy)/max(ux*ux+uy*uy, 1e-12), 0), 1)
	return math.Hypot(p.x-a.x-t*ux, p.y-a.y-t*uy)
}

// IDX are bytes in the format of MNIST (package data), of so many sizes.
func IDX(data []byte, sizes ...int) []byte {
	out := []byte{0, 0, 8, byte(len(sizes))}
	for _, s := range sizes {
		out = binary.BigEndian.AppendUint32(out, uint32(s))
	}
	return append(out, data...)
}
