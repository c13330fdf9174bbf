package aten

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Linear is F.linear (aten/src/ATen/native/Linear.cpp): one addmm where the
// input is a matrix or contiguous and there is a bias, else matmul and an
// in-place addition.
var Linear = define(op.Op{
	Name: "linear", Takes: op.OneType, Sig: "F.linear(input, weight, bias: tensor? = None)", Composite: true, Cast: op.CastLower,
	Run: func(c *op.Call) {
		x, w, bias := c.In[0], c.In[1], c.Opt(2)
		if w.Rank() != 2 {
			c.Fail("weight must have two dimensions, not shape %v", w.Size)
		}
		if x.Rank() == 0 || x.Dim(-1) != w.Dim(-1) {
			c.Fail("input of shape %v does not fit weight of shape %v", x.Size, w.Size)
		}
		if bias != nil && x.Rank() == 2 {
			wt := c.Local(c.Do1(T, nil, w))
			c.Return(c.Do1(Addmm, nil, bias, x, wt))
			return
		}
		if bias != nil && (x.Rank() == 3 || bias.Rank() == 1) && x.IsContiguous() {
			outer := append([]int64(nil), x.Size.Slice()[:x.Rank()-1]...)
			rows := int64(1)
			for _, n := range outer {
				rows *= n
			}
			flat := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{rows, x.Dim(-1)}}, x))
			wt := c.Do1(T, nil, w)
			y := c.Local(c.Do1(Addmm, nil, bias, flat, wt))
			c.Drop(wt)
			c.Return(c.Do1(View, &ShapeArgs{Shape: append(outer, y.Dim(1))}, y))
			return
		}
		wt := c.Do1(T, nil, w)
		y := c.Do1(Matmul, nil, x, wt)
		c.Drop(wt)
		switch {
		case bias != nil && c.Env().TorchDispatch:
			c.Return(c.Do1(Add, &AddArgs{}, y, bias))
			c.Drop(y)
			return
		case bias != nil:
			c.Drop(c.Do1(AddInPlace, &AddArgs{}, y, bias))
		}
		c.Return(y)
	},
	Source: "aten/src/ATen/native/Linear.cpp: linear, _flatten_nd_linear",
})

// Bilinear is x1' W x2 for each output, and a bias.
var Bilinear = define(op.Op{
	Name: "bilinear", Takes: op.OneType, Sig: "F.bilinear(input1, input2, weight, bias: tensor? = None)", Composite: true, Cast: op.CastPromote,
	Run: func(c *op.Call) {
		x1, x2, w, bias := c.In[0], c.In[1], c.In[2], c.Opt(3)
		if w.Rank() != 3 {
			c.Fail("weight must have three dimensions, not shape %v", w.Size)
		}
		if x1.Rank() == 0 || x1.Rank() != x2.Rank() || x1.Dim(-1) != w.Dim(1) || x2.Dim(-1) != w.Dim(2) ||
			!slices.Equal(x1.Size.Slice()[:x1.Rank()-1], x2.Size.Slice()[:x1.Rank()-1]) {
			c.Fail("inputs of shapes %v and %v do not fit weight of shape %v", x1.Size, x2.Size, w.Size)
		}
		if x1.Numel() == 0 || w.Numel() == 0 || x1.DType != x2.DType || x1.DType != w.DType {
			c.Fail("inputs must have elements, and all the same type")
		}
		if bias != nil && bias.Size != tensor.D(w.Dim(0)) {
			c.Fail("bias of shape %v does not fit weight of shape %v", bias.Size, w.Size)
		}
		flat1 := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{-1, x1.Dim(-1)}}, x1))
		flat2 := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{-1, x2.Dim(-1)}}, x2))
		y := c.Do1(Trilinear, &trilinearArgs{Expand: [3][]int{{1, 3}, {0}, {1, 2}}, Sum: []int{2, 3}}, flat1, w, flat2)
		out := c.Do1(Reshape, &ShapeArgs{Shape: append(x1.Size.Slice()[:x1.Rank()-1:x1.Rank()-1], w.Dim(0))}, y)
		c.Drop(y)
		if bias != nil {
			sum := c.Do1(Add, &BinaryArgs{}, out, bias)
			c.Drop(out)
			out = sum
		}
		c.Return(out)
	},
	Source: "aten/src/ATen/native/Linear.cpp: bilinear",
})

// trilinearArgs name, among four dimensions, those that each operand lacks and
// those that are summed.
type trilinearArgs struct {
	Expand [3][]int
	Sum    []int
}

// trilinearUnroll is the dimension over which _trilinear loops: the outputs.
const trilinearUnroll = 1

// Trilinear is the sum of products of three operands, one output after the
// other.
var Trilinear = define(op.Op{
	Name: "_trilinear", Args: &trilinearArgs{}, Run: func(c *op.Call) {
		c.WithoutGrad(func() { c.Return(trilinear(c, c.Args.(*trilinearArgs), c.In[0], c.In[1], c.In[2])) })
	},
	Save: []op.Save{op.In(0, 1, 2), op.In(1, 0, 2), op.In(2, 0, 1)}, Node: "TrilinearBackward0",
	Grad: func(b *op.Back) {
		a, x, g := b.Args.(*trilinearArgs), b.SavedIns(), b.Grads[0]
		e := a.Expand
		grad := func(i int, expand [3][]int, ts ...*op.Tensor) {
			b.Within(func() { b.Set(i, trilinear(&b.Call, &trilinearArgs{expand, e[i]}, ts[0], ts[1], ts[2])) })
		}
		if b.Need(0) {
			grad(0, [3][]int{a.Sum, e[1], e[2]}, g, x[1], x[2])
		}
		if b.Need(1) {
			grad(1, [3][]int{e[0], a.Sum, e[2]}, x[0], g, x[2])
		}
		if b.Need(2) {
			grad(2, [3][]int{e[0], e[1], a.Sum}, x[0], x[1], g)
		}
	},
	Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
		a.Put(c.Out[0], array.Trilinear(a.Array(c.In[0]), a.Array(c.In[1]), a.Array(c.In[2])))
	}, func(a op.Arrays, b *op.Back) {
		get := func(i int) *array.Array { // of a saved input that no gradient uses, its shape
			if t := a.Array(b.SavedIn(i)); t != nil {
				return t
			}
			return &array.Array{Size: b.InM[i].Size.Ints(), V: make([]float64, b.InM[i].Numel())}
		}
		g1, gw, g2 := array.TrilinearGrad(get(0), get(1), get(2), a.Get(b.Grads[0]))
		a.Put(a.Wanted(b, 0), g1)
		a.Put(a.Wanted(b, 1), gw)
		a.Put(a.Wanted(b, 2), g2)
	}),
	Source: "aten/src/ATen/native/Linear.cpp: _trilinear; FunctionsManual.cpp: _trilinear_backward",
})

func trilinear(c *op.Call, a *trilinearArgs, operands ...*op.Tensor) *op.Tensor {
	const rank = 4
	var in [3]*op.Tensor
	for i, t := range operands {
		in[i] = c.Keep(t)
		for _, d := range a.Expand[i] {
			next := c.Do1(Unsqueeze, &DimArgs{Dim: d}, in[i])
			c.Drop(in[i])
			in[i] = next
		}
		c.Local(in[i])
	}
	var size [rank]int64
	var sum12, sum23 []int64
	unroll := int64(1)
	for d := range rank {
		n := int64(1)
		for _, t := range in {
			n = max(n, t.Dim(d))
		}
		size[d] = n
		switch summed := slices.Contains(a.Sum, d); {
		case d == trilinearUnroll:
			unroll = n
		case summed && slices.Contains(a.Expand[2], d):
			sum12 = append(sum12, int64(d))
		case summed:
			sum23 = append(sum23, int64(d))
		}
		if slices.Contains(a.Sum, d) {
			size[d] = 1
		}
	}
	const most = 1 << 14
	if unroll > most {
		c.Fail("bilinear with %d outputs is not modelled; at most %d are", unroll, most)
	}
	out := c.NewShape(operands[0].DType, size[:]...)
	for k := range unroll {
		x, y, z := sliceAt(c, in[0], k), sliceAt(c, in[1], k), sliceAt(c, in[2], k)
		buf := slicePair(c, x, y, sum12)
		next := slicePair(c, buf, z, sum23)
		c.Drop(buf, next, x, y, z)
	}
	shape := make([]int64, 0, rank)
	for d := range rank {
		if !slices.Contains(a.Sum, d) {
			shape = append(shape, size[d])
		}
	}
	y := c.Alias(out, tensor.Contiguous(tensor.D(shape...)), out.DType)
	c.Drop(out)
	return y
}

// sliceAt is one slice of the unrolled dimension, or all of a dimension of 1.
func sliceAt(c *op.Call, t *op.Tensor, k int64) *op.Tensor {
	l := t.Layout
	if l.Dim(trilinearUnroll) > 1 {
		l = l.Narrow(trilinearUnroll, k, 1, 1)
	}
	return c.Alias(t, l, t.DType)
}

// slicePair is sumproduct_pair with nothing to sum or one dimension.
func slicePair(c *op.Call, l, r *op.Tensor, sums []int64) *op.Tensor {
	if len(sums) == 0 {
		return c.Do1(Mul, &BinaryArgs{}, l, r)
	}
	return sumProduct(c, l, r, sums)
}

// EinsumArgs is the equation of einsum.
type EinsumArgs struct {
	Equation string `arg:"equation"`
}

// Einsum multiplies its operands from the left to the right: a product where
// nothing is summed, else one batch of matrix products.
var Einsum = define(op.Op{
	Name: "einsum", Sig: "torch.einsum(equation: str, *operands: tensors)", Args: &EinsumArgs{}, Composite: true, Cast: op.CastLower, Run: einsum,
	NotModelled: "the order in which einsum multiplies more than two operands where the package opt_einsum is installed; without it, it is from the left to the right",
	Source:      "aten/src/ATen/native/Linear.cpp: einsum, sumproduct_pair",
})

// ellipsis stands for "..." among the labels of an equation.
const ellipsis = '.'

// equation is what einsum makes of its text: the labels of each operand, and
// the dimension that each label has in a common order, in which those of the
// result come first. The ellipsis has several.
type equation struct {
	operands [][]byte
	at       map[byte]int
	wide     int // dimensions of the ellipsis
	out, all int
}

// labels reads one side of an equation.
func labels(c *op.Call, s string) []byte {
	s = strings.ReplaceAll(s, "...", string(ellipsis))
	for i := range len(s) {
		if r := s[i]; !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == ellipsis) || r == ellipsis && strings.IndexByte(s, ellipsis) != i {
			c.Fail("einsum %q: labels are letters, and one ... for further dimensions", c.Args.(*EinsumArgs).Equation)
		}
	}
	return []byte(s)
}

func parseEquation(c *op.Call) *equation {
	text := strings.ReplaceAll(c.Args.(*EinsumArgs).Equation, " ", "")
	left, right, explicit := strings.Cut(text, "->")
	e := &equation{at: map[byte]int{}}
	count := map[byte]int{}
	for _, part := range strings.Split(left, ",") {
		e.operands = append(e.operands, labels(c, part))
	}
	if len(e.operands) != len(c.In) {
		c.Fail("einsum %q has %d operands, but %d are given", text, len(e.operands), len(c.In))
	}
	for i, labels := range e.operands {
		rank := c.In[i].Rank()
		if slices.Contains(labels, ellipsis) && len(labels)-1 <= rank {
			e.wide = max(e.wide, rank-len(labels)+1)
		} else if len(labels) != rank {
			c.Fail("einsum %q names %d dimensions of shape %v", text, len(labels), c.In[i].Size)
		}
		for _, l := range labels {
			count[l]++
		}
	}
	place := func(l byte) {
		e.at[l] = e.all
		if e.all++; l == ellipsis {
			e.all += e.wide - 1
		}
	}
	order := slices.Sorted(maps.Keys(count)) // the ellipsis, capitals, small letters
	var out []byte
	if explicit {
		out = labels(c, right)
	} else {
		for _, l := range order {
			if l == ellipsis || count[l] == 1 {
				out = append(out, l)
			}
		}
	}
	for i, l := range out {
		switch {
		case count[l] == 0 && l != ellipsis:
			c.Fail("einsum %q has a label in the result that no operand has", text)
		case bytes.IndexByte(out, l) != i:
			c.Fail("einsum %q has label %c twice in the result", text, l)
		}
		place(l)
	}
	e.out = e.all
	for _, l := range order {
		if _, ok := e.at[l]; !ok {
			place(l)
		}
	}
	if e.all > tensor.MaxRank {
		c.Fail("einsum with more than %d labels is not modelled", tensor.MaxRank)
	}
	return e
}

func einsum(c *op.Call) {
	e := parseEquation(c)
	var ops []*op.Tensor
	counts := make([]int, e.all) // in how many operands a dimension is not 1
	sizes := make([]int64, e.all)
	for i := range e.operands {
		x := aligned(c, c.In[i], e.operands[i], e)
		ops = append(ops, x)
		for d := range e.all {
			if n := x.Dim(d); n != 1 {
				if counts[d]++; sizes[d] != 0 && sizes[d] != n {
					c.Fail("einsum %q: a label has %d and %d elements", c.Args.(*EinsumArgs).Equation, sizes[d], n)
				}
				sizes[d] = n
			}
		}
	}
	for len(ops) > 1 {
		mark := c.Mark()
		product := contract(c, e, c.Local(ops[0]), c.Local(ops[1]), counts)
		c.DropTo(mark)
		ops = append([]*op.Tensor{product}, ops[2:]...)
	}
	y := ops[0]
	switch {
	case e.all == e.out:
	case len(e.operands) > 1:
		c.Local(y)
		y = c.Do1(View, &ShapeArgs{Shape: y.Size.Slice()[:e.out]}, y)
	default:
		a := &ReduceArgs{}
		for d := e.out; d < e.all; d++ {
			a.Dim = append(a.Dim, int64(d))
		}
		c.Local(y)
		y = c.Do1(Sum, a, y)
	}
	c.Return(y)
}

// contract multiplies two operands and sums the dimensions that no other has.
func contract(c *op.Call, e *equation, a, b *op.Tensor, counts []int) *op.Tensor {
	var sums, aSums, bSums []int64
	for d := e.out; d < e.all; d++ {
		switch inA, inB := a.Dim(d) != 1, b.Dim(d) != 1; {
		case inA && inB:
			if counts[d]--; counts[d] == 1 {
				sums = append(sums, int64(d))
				counts[d] = 0
			}
		case counts[d] == 1 && inA:
			aSums = append(aSums, int64(d))
			counts[d] = 0
		case counts[d] == 1 && inB:
			bSums = append(bSums, int64(d))
			counts[d] = 0
		}
	}
	if len(aSums) > 0 {
		a = c.Local(c.Do1(Sum, &ReduceArgs{Dim: aSums, KeepDim: true}, a))
	}
	if len(bSums) > 0 {
		b = c.Local(c.Do1(Sum, &ReduceArgs{Dim: bSums, KeepDim: true}, b))
	}
	if len(sums) == 0 {
		return c.Do1(Mul, &BinaryArgs{}, a, b)
	}
	return sumProduct(c, a, b, sums)
}

// aligned permutes an operand to the order of all labels: of a label that it has
// twice it takes the diagonal, for those that it lacks dimensions of 1. The
// caller owns the result.
func aligned(c *op.Call, x *op.Tensor, labels []byte, e *equation) *op.Tensor {
	missing := e.wide - (x.Rank() - len(labels) + 1)
	x = c.Keep(x)
	next := func(r *op.Op, args any) {
		y := c.Do1(r, args, x)
		c.Drop(x)
		x = y
	}
	perm := make([]int64, e.all)
	for i := range perm {
		perm[i] = -1
	}
	j := 0
	seen := map[byte]int{}
	for _, l := range labels {
		dim, again := seen[l]
		switch {
		case l == ellipsis:
			for range missing {
				next(Unsqueeze, &DimArgs{Dim: j})
			}
			for k := range e.wide {
				perm[e.at[l]+k] = int64(j)
				j++
			}
		case again: // diagonal(0, dim, j).movedim(-1, dim)
			if x.Dim(dim) != x.Dim(j) {
				c.Fail("einsum %q: label %c has %d and %d elements", c.Args.(*EinsumArgs).Equation, l, x.Dim(dim), x.Dim(j))
			}
			next(diagonal, &DiagonalOfArgs{Dim1: dim, Dim2: j})
			next(Permute, &PermuteArgs{Dims: lastTo(x.Rank(), dim)})
		default:
			seen[l] = j
			perm[e.at[l]] = int64(j)
			j++
		}
	}
	for i := range perm {
		if perm[i] < 0 {
			next(Unsqueeze, &DimArgs{Dim: -1})
			perm[i] = int64(j)
			j++
		}
	}
	next(Permute, &PermuteArgs{Dims: perm})
	return x
}

// lastTo is the permutation that moves the last of n dimensions to dim.
func lastTo(n, dim int) []int64 {
	var p []int64
	for i := range n - 1 {
		if i == dim {
			p = append(p, int64(n-1))
		}
		p = append(p, int64(i))
	}
	if dim == n-1 {
		p = append(p, int64(n-1))
	}
	return p
}

// sumProduct is sumproduct_pair: both operands as batches of matrices, one bmm,
// and its result permuted back. The summed dimensions stay, with size 1. Since 2.9 the
// operands change places if the result then lies in order.
func sumProduct(c *op.Call, left, right *op.Tensor, sums []int64) *op.Tensor {
	var both, lo, ro []int64
	nBoth, nLo, nRo, nSum := int64(1), int64(1), int64(1), int64(1)
	for i := range left.Rank() {
		d, l, r := int64(i), left.Dim(i), right.Dim(i)
		switch {
		case slices.Contains(sums, d):
			if l != r {
				c.Fail("einsum sums dimensions of %d and %d elements", l, r)
			}
			nSum *= l
		case l != 1 && r != 1:
			if l != r {
				c.Fail("einsum multiplies dimensions of %d and %d elements", l, r)
			}
			both, nBoth = append(both, d), nBoth*l
		case l != 1:
			lo, nLo = append(lo, d), nLo*l
		default:
			ro, nRo = append(ro, d), nRo*r
		}
	}
	if c.Env().Torch.Has(torchver.EinsumSwaps) && len(lo) > 0 && len(ro) > 0 && ro[len(ro)-1] < lo[0] {
		left, right, lo, ro, nLo, nRo = right, left, ro, lo, nRo, nLo
	}
	flat := func(x *op.Tensor, shape []int64, orders ...[]int64) *op.Tensor {
		p := c.Do1(Permute, &PermuteArgs{Dims: slices.Concat(orders...)}, x)
		defer c.Drop(p)
		return c.Do1(Reshape, &ShapeArgs{Shape: shape}, p)
	}
	var size []int64
	for _, d := range both {
		size = append(size, left.Dim(int(d)))
	}
	for _, d := range lo {
		size = append(size, left.Dim(int(d)))
	}
	for range sums {
		size = append(size, 1)
	}
	for _, d := range ro {
		size = append(size, right.Dim(int(d)))
	}
	mark := c.Mark()
	l := c.Local(flat(left, []int64{nBoth, nLo, nSum}, both, lo, sums, ro))
	r := c.Local(flat(right, []int64{nBoth, nSum, nRo}, both, sums, ro, lo))
	m := c.Do1(Bmm, nil, l, r)
	v := c.Do1(View, &ShapeArgs{Shape: size}, m)
	c.Drop(m)
	back := make([]int64, len(size))
	for i, d := range slices.Concat(both, lo, sums, ro) {
		back[d] = int64(i)
	}
	y := c.Do1(Permute, &PermuteArgs{Dims: back}, v)
	c.Drop(v)
	c.DropTo(mark)
	return y
}

// LinearForZeRO3 is the autograd.Function that DeepSpeed puts in the place of F.linear with
// stage 3 of ZeRO: it saves the weight itself, not a view of it.
var LinearForZeRO3 = &op.Op{
	Name: "LinearFunctionForZeroStage3", Takes: op.OneType, Node: "LinearFunctionForZeroStage3Backward",
	Run: func(c *op.Call) {
		c.WithoutGrad(func() {
			x, w, bias := c.In[0], c.In[1], c.Opt(2)
			wt := c.Do1(T, nil, w)
			if x.Rank() == 2 && bias != nil {
				c.Return(c.Do1(Addmm, nil, bias, x, wt))
				c.Drop(wt)
				return
			}
			y := c.Do1(Matmul, nil, x, wt)
			c.Drop(wt)
			if bias != nil {
				c.Drop(c.Do1(AddInPlace, &AddArgs{}, y, bias))
			}
			c.Return(y)
		})
	},
	Save: []op.Save{op.In(0), op.In(1), op.In(2)}, Late: true,
	Grad: func(b *op.Back) {
		x, w, g := b.SavedIn(0), b.SavedIn(1), b.Grads[0]
		n := g.Rank()
		if n == 1 {
			b.Fail("DeepSpeed's F.linear of a vector is not modelled")
		}
		if b.Need(0) {
			b.Set(0, b.Do1(Matmul, nil, g, w))
		}
		if b.Need(1) {
			rows := func(t *op.Tensor) *op.Tensor {
				if n == 2 {
					return b.Keep(t)
				}
				return b.Do1(Reshape, &ShapeArgs{Shape: []int64{-1, t.Dim(-1)}}, t)
			}
			flat := rows(g)
			gt := b.Do1(T, nil, flat)
			b.Drop(flat)
			in := rows(x)
			b.Set(1, b.Do1(Matmul, nil, gt, in))
			b.Drop(gt, in)
		}
		if b.Need(2) {
			var outer []int64
			for i := range n - 1 {
				outer = append(outer, int64(i))
			}
			b.Set(2, b.Do1(Sum, &ReduceArgs{Dim: outer}, g))
		}
	},
	Source: "deepspeed/runtime/zero/linear.py: LinearFunctionForZeroStage3",
}
