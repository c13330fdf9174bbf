package array

// Likelihood calls f for each target of a negative log likelihood that counts, with its
// number, the place of its class in an input of a size, and its weight; without weights
// 1.
func Likelihood(size []int, target, weight []float64, ignored int64, f func(i, at int, w float64)) error {
	classes, inner := size[0], 1
	if len(size) > 1 {
		classes, inner = size[1], Numel(size[2:])
	}
	for i, v := range target {
		k := int(v)
		if int64(k) == ignored {
			continue
		}
		if k < 0 || k >= classes {
			return Outside(k, classes)
		}
		f(i, (i/inner*classes+k)*inner+i%inner, or(weight, k, 1))
	}
	return nil
}
