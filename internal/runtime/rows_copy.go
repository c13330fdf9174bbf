package runtime

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// drawn fills the result with random numbers, which are made on the host.
func drawn(next func(*stream) float64) row {
	return row{forward: func(x *Executor, c *op.Call) error {
		v, r := make([]float64, c.Out[0].Numel()), newStream(uint64(x.draw()))
		for i := range v {
			v[i] = next(r)
		}
		return x.write(c.Out[0], tensor.Encode(c.Out[0].DType, v))
	}}
}

// drawnRows are random tensors.
var drawnRows = map[*op.Op]row{
	op.Rand:  drawn((*stream).uniform),
	op.Randn: drawn((*stream).normal),
}
