package array

// Bags are bags of rows of a table, which are summed, averaged, or of which the largest
// elements are taken (aten/src/ATen/native/EmbeddingBag.cpp).
type Bags struct {
	Index, Offsets []float64 // the rows, and where each bag starts among them
	Mode           string    // sum, mean or max
	Padding        int       // a row that does not count; -1: none
	Weights        []float64 // of the rows of Index; nil: 1
}

// each calls f for each index of n bags that counts: with the bag, the number of the
// index, and the row that it names.
func (b *Bags) each(n, rows int, f func(bag, i, row int)) error {
	for k := range n {
		end := len(b.Index)
		if k+1 < len(b.Offsets) {
			end = int(b.Offsets[k+1])
		}
		if b.Offsets[k] < 0 || end > len(b.Index) {
			return Outside(end, len(b.Index))
		}
		for i := int(b.Offsets[k]); i < end; i++ {
			row := int(b.Index[i])
			if row < 0 || row >= rows {
				return Outside(row, rows)
			}
			if row != b.Padding {
				f(k, i, row)
			}
		}
	}
	return nil
}

func (b *Bags) weight(i int) float64 {
	if b.Weights == nil {
		return 1
	}
	return b.Weights[i]
}

// Sum gives the rows of n bags, the bag of each index, how many count in each bag, and
// of which row each element is with max.
func (b *Bags) Sum(table *Array, n int) (y, bagOf, counts, best []float64, err error) {
	rows, width := table.Size[0], table.Size[1]
	y, counts, best = make([]float64, n*width), make([]float64, n), make([]float64, n*width)
	bagOf = make([]float64, len(b.Index))
	err = b.each(n, rows, func(k, i, row int) {
		counts[k]++
		bagOf[i] = float64(k)
		scale := b.weight(i)
		for j := range width {
			v, to := table.V[row*width+j], k*width+j
			switch {
			case b.Mode != "max":
				y[to] += scale * v
			case counts[k] == 1 || v > y[to]:
				y[to], best[to] = v, float64(row)
			}
		}
	})
	for i := range y {
		switch count := counts[i/max(width, 1)]; {
		case b.Mode == "mean" && count > 0:
			y[i] /= count
		case b.Mode == "max" && count == 0:
			best[i] = -1
		}
	}
	return y, bagOf, counts, best, err
}

// SumGrad gives the gradients of a table of so many rows and, where the table is given,
// of the weights.
func (b *Bags) SumGrad(g *Array, rows int, counts []float64, table *Array) (gtable, gweights []float64, err error) {
	n, width := g.Size[0], g.Size[1]
	gtable, gweights = make([]float64, rows*width), make([]float64, len(b.Index))
	err = b.each(n, rows, func(k, i, row int) {
		scale := b.weight(i)
		if b.Mode == "mean" {
			scale /= counts[k]
		}
		for j := range width {
			v := g.V[k*width+j]
			gtable[row*width+j] += scale * v
			if table != nil {
				gweights[i] += v * table.V[row*width+j]
			}
		}
	})
	return gtable, gweights, err
}

// MaxGrad is the gradient of a table of so many rows where the largest elements were
// taken, of the rows in best.
func MaxGrad(g *Array, rows int, best []float64) []float64 {
	width := g.Size[1]
	out := make([]float64, rows*width)
	for i, row := range best {
		if row >= 0 {
			out[int(row)*width+i%width] += g.V[i]
		}
	}
	return out
}

// Renorm scales the rows that an index names so that their norm of order p is most. It
// changes the array.
func (a *Array) Renorm(index []float64, p, most float64) error {
	done := map[int]bool{}
	for _, v := range index {
		row := int(v)
		if row < 0 || row >= a.Size[0] {
			return Outside(row, a.Size[0])
		}
		if done[row] {
			continue
		}
		done[row] = true
		x := a.V[row*a.Size[1] : (row+1)*a.Size[1]]
		if norm := Norm(x, p); norm > most {
			for i := range x {
				x[i] *= most / (norm + 1e-7)
			}
		}
	}
	return nil
}
