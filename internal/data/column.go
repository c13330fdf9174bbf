package data

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// column is what several arrays hold for one input: their samples follow one another.
type column struct {
	parts []*Array
	ends  []int64 // of the samples of each
}

// joined are the arrays of files for an input, which have samples of one kind.
func joined(in program.Input, files []*File) (*column, error) {
	c := &column{}
	end := int64(0)
	for _, f := range files {
		a := f.Array
		switch {
		case f.Text != nil:
			return nil, fmt.Errorf("%s is a text, %s is none", f.Name, files[0].Name)
		case a != nil:
		case in.DType.IsFloating():
			a = f.Images
		default:
			a = f.Labels
		}
		if len(c.parts) > 0 {
			if b := c.parts[0]; a.DType != b.DType || !slices.Equal(a.Size[1:], b.Size[1:]) {
				return nil, fmt.Errorf("%s has samples of shape %s and type %v, %s of shape %s and type %v", a.Name,
					tensor.SizeString(a.Size[1:]), a.DType, b.Name, tensor.SizeString(b.Size[1:]), b.DType)
			}
		}
		end += a.Samples()
		c.parts, c.ends = append(c.parts, a), append(c.ends, end)
	}
	return c, nil
}

func (c *column) samples() int64 { return c.ends[len(c.ends)-1] }

// at is where a sample is: the array, and its number in it.
func (c *column) at(sample int64) (*Array, int64) {
	k := sort.Search(len(c.ends), func(k int) bool { return sample < c.ends[k] })
	if k > 0 {
		sample -= c.ends[k-1]
	}
	return c.parts[k], sample
}

// moments are the mean of bytes and one over their standard deviation.
func (c *column) moments() (mean, scale float64) {
	var counts [256]float64
	n := 0.0
	for _, a := range c.parts {
		for _, v := range a.data {
			counts[v]++
		}
		n += float64(len(a.data))
	}
	var sum, squares float64
	for v, n := range counts {
		sum += n * float64(v)
		squares += n * float64(v) * float64(v)
	}
	mean = sum / n
	return mean, 1 / math.Sqrt(max(squares/n-mean*mean, 1e-12))
}
