package array

// Scatter calls f for each element of an index that stands along dimension d of an array
// of a size: with its place as one of a source, nil if there is none, and with its place
// in the array.
func Scatter(size []int, d int, index *Array, source []int, f func(from, to int)) error {
	var err error
	at := make([]int, len(size))
	walk(index.Size, func(i int, idx []int) {
		copy(at, idx)
		if at[d] = Index(index.V[i], size[d]); at[d] < 0 || at[d] >= size[d] {
			if err == nil {
				err = Outside(int(index.V[i]), size[d])
			}
			return
		}
		from := 0
		if source != nil {
			from = rowMajor(source, idx)
		}
		f(from, rowMajor(size, at))
	})
	return err
}

// Slices calls f for each element of the slices along dimension d that an index names:
// with its place among them and in the array.
func Slices(size []int, d int, index []float64, f func(from, to int)) error {
	inner := Numel(size[d+1:])
	for o := range Numel(size[:d]) {
		for k, v := range index {
			at := Index(v, size[d])
			if at < 0 || at >= size[d] {
				return Outside(int(v), size[d])
			}
			for i := range inner {
				f((o*len(index)+k)*inner+i, (o*size[d]+at)*inner+i)
			}
		}
	}
	return nil
}

// OneHot has, for each index, n numbers of which that one is 1.
func OneHot(index []float64, n int) ([]float64, error) {
	out := make([]float64, len(index)*n)
	for i, v := range index {
		if v < 0 || int(v) >= n {
			return nil, Outside(int(v), n)
		}
		out[i*n+int(v)] = 1
	}
	return out, nil
}
