package runtime

import "github.com/memplan/memplan/internal/program"

// Source is where batches come from.
type Source interface {
	// Values are those of an input in batch n, from 0: its elements, row-major and
	// little-endian. Inputs of one batch belong together.
	Values(n int, in program.Input) ([]byte, error)
}
