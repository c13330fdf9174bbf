package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// reduction is the part of TensorIterator and of Reduce.cuh that decides how
// much scratch memory a sum over some dimensions takes. Dimensions run from
// the innermost to the outermost, the reduced ones first.
type reduction struct {
	shape     []int64
	in, out   []int64 // strides in bytes; out is 0 along reduced dimensions
	inSize    int64   // bytes of an input element
	accSize   int64   // bytes of an accumulator
	inOffset  int64   // elements by which the input's first element is off its block
	numel     int64
	numOutput int64
}

// newReduction sets up the iteration over in with the given dimensions
// reduced (TensorIterator::reduce_op).
func newReduction(in *op.Tensor, dims []bool, accSize int64) *reduction {
	r := &reduction{inSize: in.DType.Size(), accSize: accSize, inOffset: in.Offset, numel: in.Numel(), numOutput: 1}
	n := in.Rank()
	var outSize tensor.Dims
	for i := range n {
		if dims[i] {
			outSize = outSize.Append(1)
		} else {
			outSize = outSize.Append(in.Dim(i))
			r.numOutput *= in.Dim(i)
		}
	}
	outL := tensor.Contiguous(outSize)
	perm := make([]int, n)
	for i := range perm {
		perm[i] = n - 1 - i
	}
	outStride := func(d int) int64 {
		if dims[d] {
			return 0
		}
		return outL.Stride.At(d)
	}
	// reorder_dimensions: reduced dimensions come to the front, the rest by
	// stride, ties by size; the output is compared before the input.
	compare := func(a, b int) int {
		oa, ob := outStride(a), outStride(b)
		if (oa == 0) != (ob == 0) {
			if ob == 0 {
				return 1
			}
			return -1
		}
		for _, s := range [2][2]int64{{oa, ob}, {in.Stride.At(a), in.Stride.At(b)}} {
			switch {
			case s[0] == 0 || s[1] == 0:
			case s[0] < s[1]:
				return -1
			case s[0] > s[1]:
				return 1
			default:
				if in.Dim(a) > in.Dim(b) {
					return 1
				}
			}
		}
		return 0
	}
	for i := 1; i < n; i++ {
		d1 := i
		for d0 := i - 1; d0 >= 0; d0-- {
			c := compare(perm[d0], perm[d1])
			if c > 0 {
				perm[d0], perm[d1] = perm[d1], perm[d0]
				d1 = d0
			} else if c < 0 {
				break
			}
		}
	}
	r.shape, r.in, r.out = make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
	for _, d := range perm {
		r.shape = append(r.shape, in.Dim(d))
		r.in = append(r.in, in.Stride.At(d)*r.inSize)
		r.out = append(r.out, outStride(d)*r.inSize)
	}
	r.coalesce()
	return r
}

// coalesce merges neighbouring dimensions that iterate as one
// (TensorIteratorBase::coalesce_dimensions).
func (r *reduction) coalesce() {
	if len(r.shape) < 2 {
		return
	}
	prev := 0
	for d := 1; d < len(r.shape); d++ {
		s0, s1 := r.shape[prev], r.shape[d]
		if s0 == 1 || s1 == 1 || (s0*r.in[prev] == r.in[d] && s0*r.out[prev] == r.out[d]) {
			if s0 == 1 {
				r.in[prev], r.out[prev] = r.in[d], r.out[d]
			}
			r.shape[prev] = s0 * s1
			continue
		}
		prev++
		r.shape[prev], r.in[prev], r.out[prev] = r.shape[d], r.in[d], r.out[d]
	}
	r.shape, r.in, r.out = r.shape[:prev+1], r.in[:prev+1], r.out[:prev+1]
}

// reduced counts the leading reduced dimensions.
func (r *reduction) reduced() int {
	n := 0
	for _, s := range r.out {
		if s == 0 {
			n++
		}
	}
	return n
}

// scratch returns the sizes of the buffer and of the semaphores that the
// kernel allocates when it splits the input of one output over several thread
// blocks; both are 0 when it does not (setReduceConfig in
// aten/src/ATen/native/cuda/Reduce.cuh). vt0 is the number of values that a
// thread loads at once.
func (r *reduction) scratch(env *op.Env, vt0 int64) (buffer, semaphores int64) {
	const maxThreads, warp = 512, 32
	const minValues, maxValues = 16, 256
	if r.numOutput == 0 || r.numel == 0 {
		return 0, 0
	}
	nd, nr := len(r.shape), r.reduced()
	inputs := r.numel / r.numOutput
	vecOut := int64(1)
	dim0, dim1, fastest := int64(1), int64(1), r.inSize
	onFastest := true
	if nd > 0 {
		onFastest = nr == nd || r.in[0] < r.in[nr]
		if onFastest {
			dim0, dim1, fastest = inputs, r.numOutput, r.in[0]
		} else {
			dim0, dim1, fastest = r.numOutput, inputs, r.in[nr]
		}
	}
	if fastest == r.inSize {
		if onFastest && dim0 > 128 && nd == 1 {
			dim0 /= vt0
		} else if !onFastest {
			vecOut = r.outputVec(nr)
			dim0 /= vecOut
		}
	}
	maxT := maxThreads / vecOut
	p0, p1 := min(lastPow2(dim0), maxT), min(lastPow2(dim1), maxT)
	width := min(p0, warp)
	height := min(p1, maxT/width)
	width = min(p0, maxT/height)
	threads := width * height

	stepIn, stepOut := int64(1), int64(1)
	blockX := nd == 0 || onFastest // threads of a row work on one output
	if blockX {
		stepIn *= width
	} else {
		stepOut *= width
	}
	values := func() int64 { return tensor.DivUp(inputs, stepIn) }
	blockY := values() >= min(height*16, maxValues)
	if blockY {
		stepIn *= height
	} else {
		stepOut *= height
	}
	target := int64(env.SMs) * (int64(env.ThreadsPerSM) / threads)
	grid := tensor.DivUp(r.numOutput/vecOut, stepOut)
	if !blockY || values() < maxValues || grid > target {
		return 0, 0
	}
	ctas := max(min(tensor.DivUp(target, grid), tensor.DivUp(values(), minValues)), tensor.DivUp(values(), maxValues))
	if ctas <= 1 {
		return 0, 0
	}
	buffer = r.accSize * r.numOutput * ctas
	if !blockX {
		buffer *= width * vecOut
	}
	return buffer, 4 * grid
}

// outputVec is the width of loads along the output (get_output_vec_size).
func (r *reduction) outputVec(nr int) int64 {
	v := int64(4)
	fit := func(n int64) {
		for n%v != 0 {
			v /= 2
		}
	}
	fit(r.inOffset) // blocks themselves are aligned to 512 bytes
	fit(r.shape[nr])
	for i, s := range r.in {
		if i != nr {
			fit(s / r.inSize)
		}
	}
	return v
}

// parts splits the iteration until each part's byte offsets fit 32 bits
// (TensorIterator::with_32bit_indexing); the kernel runs once a part.
func (r *reduction) parts() []*reduction {
	far := func(stride []int64) bool {
		last := int64(0)
		for i, n := range r.shape {
			last += (n - 1) * stride[i]
		}
		return last > 1<<31-1
	}
	if r.numel <= 1<<31-1 && !far(r.in) && !far(r.out) {
		return []*reduction{r}
	}
	// get_dim_to_split: the dimension with the largest extent in bytes, the
	// outermost of equals. Of one element none can be split, as of a gradient that
	// is expanded; PyTorch asserts that then.
	dim, extent := -1, int64(-1)
	for d := len(r.shape) - 1; d >= 0; d-- {
		if r.shape[d] < 2 {
			continue
		}
		for _, s := range []int64{r.out[d], r.in[d]} {
			if e := (r.shape[d] - 1) * s; e > extent {
				dim, extent = d, e
			}
		}
	}
	var all []*reduction
	first := r.shape[dim] / 2
	for _, n := range []int64{first, r.shape[dim] - first} {
		q := *r
		q.shape = append([]int64(nil), r.shape...)
		q.shape[dim] = n
		q.numel = r.numel / r.shape[dim] * n
		if r.out[dim] != 0 {
			q.numOutput = r.numOutput / r.shape[dim] * n
		}
		all = append(all, q.parts()...)
	}
	return all
}

func lastPow2(n int64) int64 {
	p := int64(1)
	for p*2 <= n {
		p *= 2
	}
	return p
}

// reduceScratch allocates and frees what the kernel of a reduction needs; the
// output exists already.
func reduceScratch(c *op.Call, in *op.Tensor, dims []bool, accSize, vt0 int64) {
	if in.Numel() == 0 || c.Env().NoKernels() { // the output is filled; there is no kernel
		return
	}
	k := op.Kernel{Rule: reductionRule, In: in.Layout, DType: in.DType, AccSize: accSize, VT0: vt0}
	for i, reduced := range dims {
		if reduced {
			k.Reduced |= 1 << i
		}
	}
	c.Kernel(k)
	reductionBlocks(c, in, dims, accSize, vt0)
}

// reductionRule is reductionBlocks.
var reductionRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
	dims := make([]bool, k.In.Rank())
	for i := range dims {
		dims[i] = k.Reduced>>i&1 != 0
	}
	reductionBlocks(c, &op.Tensor{Layout: k.In, DType: k.DType}, dims, k.AccSize, k.VT0)
}}

func reductionBlocks(c *op.Call, in *op.Tensor, dims []bool, accSize, vt0 int64) {
	for _, part := range newReduction(in, dims, accSize).parts() {
		buf, sem := part.scratch(c.Env(), vt0)
		if buf == 0 {
			continue
		}
		b, s := c.NewShape(tensor.Uint8, buf), c.NewShape(tensor.Uint8, sem)
		c.Drop(s, b)
	}
}
