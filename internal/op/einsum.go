package op

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// EinsumArgs is the equation of einsum.
type EinsumArgs struct {
	Equation string `arg:"equation"`
}

// Einsum of two operands: a product where nothing is summed, else one batch of
// matrix products. Its dimensions are the labels, those of the result first.
var _ = define(Row{
	Name: "einsum", Sig: "torch.einsum(equation: str, *operands: tensors)", Args: &EinsumArgs{}, Composite: true, Cast: CastLower, Run: einsum,
	Source: "aten/src/ATen/native/Linear.cpp: einsum, sumproduct_pair",
})

// einsumLabels reads an equation of two operands with an explicit result.
func (c *Call) einsumLabels() (operands [2]string, out string) {
	eq := strings.ReplaceAll(c.Args.(*EinsumArgs).Equation, " ", "")
	left, out, explicit := strings.Cut(eq, "->")
	parts := strings.Split(left, ",")
	if !explicit || len(parts) != 2 || len(c.In) != 2 {
		c.Fail("einsum %q is not modelled; it must have two operands and an explicit result, as bij,bjk->bik", eq)
	}
	for _, s := range append(parts, out) {
		for i, r := range s {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') || strings.IndexByte(s, byte(r)) != i {
				c.Fail("einsum %q is not modelled; labels are different letters", eq)
			}
		}
	}
	for i, s := range parts {
		if len(s) != c.In[i].Rank() {
			c.Fail("einsum %q names %d dimensions of shape %v", eq, len(s), c.In[i].Size)
		}
	}
	for i := range out {
		if !strings.Contains(left, out[i:i+1]) {
			c.Fail("einsum %q has a label in the result that no operand has", eq)
		}
	}
	return [2]string(parts), out
}

func einsum(c *Call) {
	labels, out := c.einsumLabels()
	all := out
	rest := []byte(labels[0] + labels[1])
	slices.Sort(rest) // the labels that are summed follow in the order of the alphabet, capitals first
	for _, r := range rest {
		if strings.IndexByte(all, r) < 0 {
			all += string(rune(r))
		}
	}
	if len(all) > tensor.MaxRank {
		c.Fail("einsum with more than %d labels is not modelled", tensor.MaxRank)
	}
	a, b := c.align(c.In[0], labels[0], all), c.align(c.In[1], labels[1], all)
	var sums, aSums, bSums []int64
	for d := len(out); d < len(all); d++ {
		inA, inB := strings.IndexByte(labels[0], all[d]) >= 0, strings.IndexByte(labels[1], all[d]) >= 0
		switch {
		case inA && inB && a.Dim(d) != 1 && b.Dim(d) != 1:
			sums = append(sums, int64(d))
		case inA && inB && a.Dim(d) != b.Dim(d):
			c.Fail("einsum sums dimensions of %d and %d elements", a.Dim(d), b.Dim(d))
		case inA && inB: // of size 1: nothing to sum
		case inA && a.Dim(d) != 1:
			aSums = append(aSums, int64(d))
		case inB && b.Dim(d) != 1:
			bSums = append(bSums, int64(d))
		}
	}
	if len(aSums) > 0 {
		a = c.Local(c.Do1(Sum, &ReduceArgs{Dim: aSums, KeepDim: true}, a))
	}
	if len(bSums) > 0 {
		b = c.Local(c.Do1(Sum, &ReduceArgs{Dim: bSums, KeepDim: true}, b))
	}
	var y *Tensor
	if len(sums) == 0 {
		y = c.Do1(Mul, &BinaryArgs{}, a, b)
	} else {
		y = c.sumProduct(a, b, sums)
	}
	if len(all) > len(out) {
		c.Local(y)
		y = c.Do1(View, &ShapeArgs{Shape: y.Size.Slice()[:len(out)]}, y)
	}
	c.Return(y)
}

// align permutes an operand to the order of all labels, with dimensions of 1
// for those that it lacks.
func (c *Call) align(x *Tensor, labels, all string) *Tensor {
	x = c.Keep(x)
	next := func(r *Row, args any) {
		y := c.Do1(r, args, x)
		c.Drop(x)
		x = y
	}
	perm := make([]int64, len(all))
	n := int64(len(labels))
	for i := range all {
		perm[i] = int64(strings.IndexByte(labels, all[i]))
		if perm[i] < 0 {
			next(Unsqueeze, &DimArgs{Dim: -1})
			perm[i] = n
			n++
		}
	}
	next(Permute, &PermuteArgs{Dims: perm})
	return c.Local(x)
}

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
