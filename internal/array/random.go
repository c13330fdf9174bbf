package array

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Multinomial draws n indices by weights, with replacement or without, of numbers
// between 0 and 1.
func Multinomial(weights []float64, n int, replacement bool, uniform func() float64) ([]float64, error) {
	weights = slices.Clone(weights)
	out := make([]float64, 0, n)
	for range n {
		total := 0.0
		for _, w := range weights {
			if w < 0 || math.IsNaN(w) || math.IsInf(w, 0) {
				return nil, fmt.Errorf("multinomial with a weight of %v", w)
			}
			total += w
		}
		pick, left := -1, uniform()*total
		for i, w := range weights {
			if w > 0 {
				pick = i
				if left -= w; left < 0 {
					break
				}
			}
		}
		if pick < 0 {
			return nil, errors.New("multinomial with fewer weights than samples")
		}
		if !replacement {
			weights[pick] = 0
		}
		out = append(out, float64(pick))
	}
	return out, nil
}

// Permutation is one of n numbers by random keys.
func Permutation(n int, uniform func() float64) []float64 {
	keys := Each(n, func(int) float64 { return uniform() })
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(keys[i], keys[j]) })
	return Each(n, func(i int) float64 { return float64(order[i]) })
}
