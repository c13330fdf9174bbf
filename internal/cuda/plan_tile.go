package cuda

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// gpu is what plans know of the GPU.
type gpu struct {
	sms        int64 // multiprocessors
	capability int   // 80 is 8.0
}

// Arch is the compute capability times ten, such as 80.
func (d *Device) Arch() int { return d.is.capability }

// SMs is the number of multiprocessors.
func (d *Device) SMs() int { return int(d.is.sms) }

// tile is a function that computes a product by blocks of rows × cols elements.
type tile struct {
	function   string
	rows, cols int64
	grouped    bool // it reads matrices by groups of 16 bytes
	// fused and tensor say how much of the arithmetic of a GPU it comes to use: in
	// float32, and by tensor cores, which then have half precision; 0: it is not there.
	// They decide between tiles; what is true of a GPU, tools/gpu.sh measures.
	fused, tensor float64
	staged        bool         // it is one of staged.cuh
	fill          int64        // steps of k that it takes to begin and to end
	shared        tensor.Bytes // of a block: what a launch gives it
}

var (
	// Of the largest tiles, a multiprocessor has one block at a time, which begins and
	// ends alone.
	gemmTiles = []tile{
		{"gemm_256", 128, 256, true, 0.9, 0, false, 96, 0},
		{"gemm_128", 128, 128, true, 0.8, 0.6, false, 32, 0},
		smallTile,
		anyTile,
	}
	// In half precision, since compute capability 8.0.
	stagedTiles = []tile{
		{"gemm_staged_256", 128, 256, true, 0, 1, true, 128, 3 * (128 + 256) * 64 * 2},
		{"gemm_staged_128", 128, 128, true, 0, 0.8, true, 32, 4 * (128 + 128) * 32 * 2},
		{"gemm_staged_64", 64, 64, true, 0, 0.4, true, 32, 3 * (64 + 64) * 64 * 2},
		anyTile,
	}
	smallTile = tile{"gemm_64", 64, 64, true, 0.6, 0.35, false, 32, 0}
	anyTile   = tile{"gemm_any", 64, 128, false, 0.5, 0.15, false, 32, 0}
	convTile  = tile{"", 64, 128, false, 0.5, 0.15, false, 32, 0}
)

// tiles are those of matrices.
func (g gpu) tiles(u unit) []tile {
	if u.tensor && g.capability >= 80 {
		return stagedTiles
	}
	return gemmTiles
}

// mostShared is what a block may have of shared memory, by the table of compute
// capabilities in the CUDA C++ Programming Guide; of later ones, the least of those
// since 8.0.
func (g gpu) mostShared() tensor.Bytes {
	switch g.capability {
	case 80, 87:
		return 163 * tensor.KiB
	case 90, 100, 103, 110:
		return 227 * tensor.KiB
	}
	return 99 * tensor.KiB
}

// functions are those of a tile and of what adds up its parts, which must be of the
// same module.
func (t *tile) functions(u unit) (first, finish string) {
	if t.staged {
		return t.function + u.suffix, "_bf16"
	}
	return t.function + u.suffix, u.finish
}

// dynamicShared is the shared memory that launches of a function give it.
func dynamicShared(function string) tensor.Bytes {
	for _, t := range stagedTiles {
		if t.shared > 0 && strings.HasPrefix(function, t.function+"_") {
			return t.shared
		}
	}
	return 0
}

// tensorCores is how many times faster they are than float32, in round numbers: 8
// on a V100, 16 on A100 and H100.
const tensorCores = 8

// step is what the length of a part of k is a multiple of: of what any tile holds
// of it, so that groups stay whole.
const step = 32

// unit is how a product is computed: the end of its functions' names, and that of
// the function that adds up parts, which is in the same module.
type unit struct {
	suffix, finish string
	tensor         bool
}

// unit says whether the tensor cores of a GPU know the type of both operands.
func (g gpu) unit(a, b *kernel.Tensor) unit {
	switch {
	case a.DType != b.DType:
	case a.DType == tensor.Float16:
		return unit{"_f16", "", true}
	case a.DType == tensor.BFloat16 && g.capability >= 80:
		return unit{"_bf16", "_bf16", true}
	}
	return unit{}
}

// product is the work of one: batches of rows×cols elements, each a sum of depth
// products.
type product struct{ batches, rows, cols, depth int64 }

func (p product) String() string { return fmt.Sprintf("%d×%d×%d", p.rows, p.cols, p.depth) }

// blocks is how many tiles there are.
func (p product) blocks(t tile) int64 {
	return p.batches * tensor.DivUp(p.rows, t.rows) * tensor.DivUp(p.cols, t.cols)
}

// divide finds the number of parts into which a tile's k is divided so that the
// product takes the least time, and tells the length of a part, and the time.
//
// Time is counted in multiplications that a multiprocessor does at most: of the
// most that one of them gets to do, and of what parts cost: they are written, read
// and added up by a second function. The numbers are such that a part of k is worth
// it where multiprocessors would be idle.
func (g gpu) divide(p product, t tile, u unit) (count, length int64, time float64) {
	speed := t.fused
	if u.tensor {
		speed = t.tensor * tensorCores
	}
	best := 0.0
	most := max(1, min(tensor.DivUp(p.depth, tuning.depth), tuning.scratch/max(1, p.batches*p.rows*p.cols), tensor.DivUp(2*g.sms, max(1, p.blocks(t)))))
	for n := int64(1); n <= most; n++ {
		l := max(step, tensor.DivUp(tensor.DivUp(p.depth, n), step)*step)
		if k := max(1, tensor.DivUp(p.depth, l)); k != n { // as many of that length are too many
			continue
		}
		waves := tensor.DivUp(p.blocks(t)*n, max(1, g.sms))
		cost := float64(waves*t.rows*t.cols*(l+t.fill)) / speed
		if n > 1 {
			cost += tuning.finish + float64(p.batches*p.rows*p.cols*n)*tuning.sum/float64(max(1, g.sms))
		}
		if count == 0 || cost < best {
			count, length, best = n, l, cost
		}
	}
	return count, length, best
}

// tile picks the tile, and the parts of k, that take the least time for a product
// of matrices.
func (g gpu) tile(p product, u unit, grouped bool) (best tile, count, length int64, least float64) {
	for _, t := range g.tiles(u) {
		if t.grouped && !grouped || t.shared > g.mostShared() || u.tensor && t.tensor == 0 {
			continue
		}
		if n, l, time := g.divide(p, t, u); count == 0 || time < least {
			best, count, length, least = t, n, l, time
		}
	}
	return best, count, length, least
}

// grouped reports whether a matrix of a batch can be read by groups of 16 bytes:
// its elements lie together along k or along the other dimension, all groups are
// whole, and begin at multiples of 16 bytes.
func grouped(t *kernel.Tensor, other, k int) bool {
	size := t.DType.Size()
	near, far := other, k
	if t.Stride.At(k) == 1 {
		near, far = k, other
	}
	aligned := func(d int) bool { return t.Size.At(d) == 1 || t.Stride.At(d)*size%16 == 0 }
	return t.Stride.At(near) == 1 && t.Size.At(near)*size%16 == 0 && t.At%16 == 0 && aligned(far) && aligned(0)
}
