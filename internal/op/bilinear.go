package op

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// Bilinear is x1' W x2 for each output, and a bias.
var Bilinear = define(Op{
	Name: "bilinear", Takes: (*Call).oneType, Sig: "F.bilinear(input1, input2, weight, bias: tensor? = None)", Composite: true, Cast: CastPromote,
	Run: func(c *Call) {
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
var Trilinear = define(Op{
	Name: "_trilinear", Args: &trilinearArgs{}, Run: func(c *Call) {
		c.withoutGrad(func() { c.Return(c.trilinear(c.Args.(*trilinearArgs), c.In[0], c.In[1], c.In[2])) })
	},
	Save: []Save{In(0, 1, 2), In(1, 0, 2), In(2, 0, 1)}, Node: "TrilinearBackward0",
	Grad: func(b *Back) {
		a, x, g := b.Args.(*trilinearArgs), b.SavedIns(), b.Grads[0]
		e := a.Expand
		if b.Need(0) {
			b.Set(0, b.trilinear(&trilinearArgs{[3][]int{a.Sum, e[1], e[2]}, e[0]}, g, x[1], x[2]))
		}
		if b.Need(1) {
			b.Set(1, b.trilinear(&trilinearArgs{[3][]int{e[0], a.Sum, e[2]}, e[1]}, x[0], g, x[2]))
		}
		if b.Need(2) {
			b.Set(2, b.trilinear(&trilinearArgs{[3][]int{e[0], e[1], a.Sum}, e[2]}, x[0], x[1], g))
		}
	},
	Eval: aside(func(a Arrays, c *Call) {
		a.Put(c.Out[0], array.Trilinear(a.Array(c.In[0]), a.Array(c.In[1]), a.Array(c.In[2])))
	}, func(a Arrays, b *Back) {
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

func (c *Call) trilinear(a *trilinearArgs, operands ...*Tensor) *Tensor {
	const rank = 4
	var in [3]*Tensor
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
		x, y, z := c.at(in[0], k), c.at(in[1], k), c.at(in[2], k)
		buf := c.slicePair(x, y, sum12)
		next := c.slicePair(buf, z, sum23)
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

// at is one slice of the unrolled dimension, or all of a dimension of 1.
func (c *Call) at(t *Tensor, k int64) *Tensor {
	l := t.Layout
	if l.Dim(trilinearUnroll) > 1 {
		l = l.Narrow(trilinearUnroll, k, 1, 1)
	}
	return c.Alias(t, l, t.DType)
}

// slicePair is sumproduct_pair with nothing to sum or one dimension.
func (c *Call) slicePair(l, r *Tensor, sums []int64) *Tensor {
	if len(sums) == 0 {
		return c.Do1(Mul, &BinaryArgs{}, l, r)
	}
	return c.sumProduct(l, r, sums)
}
