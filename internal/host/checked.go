package host

import (
	"fmt"
	"math/bits"

	"github.com/memplan/memplan/internal/tensor"
)

// checked adds and multiplies sizes; after an overflow all results are
// meaningless and err says so.
type checked struct{ err error }

func (c *checked) add(sizes ...tensor.Bytes) tensor.Bytes {
	total, err := tensor.AddBytes(sizes...)
	if err != nil {
		c.err = fmt.Errorf("host memory: %w", err)
	}
	return total
}

func (c *checked) mul(b tensor.Bytes, n int64) tensor.Bytes {
	if high, low := bits.Mul64(uint64(b), uint64(n)); high != 0 || low > 1<<63-1 {
		c.err = fmt.Errorf("host memory: %d times %d bytes is beyond %d bytes", n, int64(b), int64(1<<63-1))
		return 0
	}
	return b * tensor.Bytes(n)
}
