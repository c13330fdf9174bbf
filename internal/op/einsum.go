package op

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// EinsumArgs is the equation of einsum.
type EinsumArgs struct {
	Equation string `arg:"equation"`
}

// Einsum multiplies its operands from the left to the right: a product where
// nothing is summed, else one batch of matrix products.
var _ = define(Op{
	Name: "einsum", Sig: "torch.einsum(equation: str, *operands: tensors)", Args: &EinsumArgs{}, Composite: true, Cast: CastLower, Run: einsum,
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
func (c *Call) labels(s string) []byte {
	s = strings.ReplaceAll(s, "...", string(ellipsis))
	for i := range len(s) {
		if r := s[i]; !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == ellipsis) || r == ellipsis && strings.IndexByte(s, ellipsis) != i {
			c.Fail("einsum %q: labels are letters, and one ... for further dimensions", c.Args.(*EinsumArgs).Equation)
		}
	}
	return []byte(s)
}

func (c *Call) equation() *equation {
	text := strings.ReplaceAll(c.Args.(*EinsumArgs).Equation, " ", "")
	left, right, explicit := strings.Cut(text, "->")
	e := &equation{at: map[byte]int{}}
	count := map[byte]int{}
	for _, part := range strings.Split(left, ",") {
		e.operands = append(e.operands, c.labels(part))
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
		out = c.labels(right)
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

func einsum(c *Call) {
	e := c.equation()
	var ops []*Tensor
	counts := make([]int, e.all) // in how many operands a dimension is not 1
	sizes := make([]int64, e.all)
	for i := range e.operands {
		x := c.align(c.In[i], e.operands[i], e)
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
		product := c.contract(e, c.Local(ops[0]), c.Local(ops[1]), counts)
		c.DropTo(mark)
		ops = append([]*Tensor{product}, ops[2:]...)
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
func (c *Call) contract(e *equation, a, b *Tensor, counts []int) *Tensor {
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
	return c.sumProduct(a, b, sums)
}

// align permutes an operand to the order of all labels: of a label that it has
// twice it takes the diagonal, for those that it lacks dimensions of 1. The
// caller owns the result.
func (c *Call) align(x *Tensor, labels []byte, e *equation) *Tensor {
	missing := e.wide - (x.Rank() - len(labels) + 1)
	x = c.Keep(x)
	next := func(r *Op, args any) {
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

// DiagonalOfArgs are the dimensions of diagonal, and how far it is off.
type DiagonalOfArgs struct {
	Offset int64 `arg:"offset"`
	Dim1   int   `arg:"dim1"`
	Dim2   int   `arg:"dim2"`
}

// Diagonal is a view of the elements whose indices along two dimensions are
// equal, or differ by an offset; its dimension is the last.
var diagonal = define(Op{
	Name: "diagonal", Sig: "torch.diagonal(input, offset: int = 0, dim1: int = 0, dim2: int = 1)", Args: &DiagonalOfArgs{},
	View: func(c *Call) []tensor.Layout {
		a, l := c.Args.(*DiagonalOfArgs), c.In[0].Layout
		d1, d2 := c.dim(a.Dim1, l.Rank()), c.dim(a.Dim2, l.Rank())
		if d1 == d2 || l.Rank() < 2 {
			c.Fail("a diagonal needs two different dimensions, not %d and %d of shape %v", a.Dim1, a.Dim2, l.Size)
		}
		n := max(min(l.Dim(d1), l.Dim(d2)-a.Offset), 0)
		stride := l.Stride.At(d1) + l.Stride.At(d2)
		if n > 0 && a.Offset > 0 {
			l.Offset += a.Offset * l.Stride.At(d2)
		}
		if a.Offset < 0 {
			if n = max(min(l.Dim(d1)+a.Offset, l.Dim(d2)), 0); n > 0 {
				l.Offset -= a.Offset * l.Stride.At(d1)
			}
		}
		hi, lo := max(d1, d2), min(d1, d2)
		l.Size = l.Size.Remove(hi).Remove(lo).Append(n)
		l.Stride = l.Stride.Remove(hi).Remove(lo).Append(stride)
		return []tensor.Layout{l}
	},
	Node:   "DiagonalBackward0",
	Grad:   func(b *Back) { b.Set(0, b.NewShape(b.Grads[0].DType, b.InM[0].Size.Slice()...)) }, // zeros, then a copy into the diagonal
	Source: "aten/src/ATen/native/TensorShape.cpp: diagonal; torch/csrc/autograd/FunctionsManual.cpp: diagonal_backward",
})

// sumProduct is sumproduct_pair: both operands as batches of matrices, one bmm,
// and its result permuted back. The summed dimensions stay, with size 1.
func (c *Call) sumProduct(left, right *Tensor, sums []int64) *Tensor {
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
	flat := func(x *Tensor, shape []int64, orders ...[]int64) *Tensor {
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
