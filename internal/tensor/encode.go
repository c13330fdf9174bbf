package tensor

// Encode writes numbers as elements of type d; see DType.Put.
func Encode(d DType, v []float64) []byte {
	out := make([]byte, int64(len(v))*d.Size())
	for i, x := range v {
		d.Put(out[int64(i)*d.Size():], x)
	}
	return out
}

// Decode reads elements of type d as numbers.
func Decode(d DType, data []byte) []float64 {
	out := make([]float64, int64(len(data))/d.Size())
	for i := range out {
		out[i] = d.Number(data[int64(i)*d.Size():])
	}
	return out
}
