package op

// Diff is the difference of neighbours along a dimension, of what prepend and
// the input are together.
var _ = define(Op{
	Name: "diff", Sig: "torch.diff(input, *, dim: int = -1, prepend: tensor? = None)", Args: &DimArgs{}, Composite: true, Run: func(c *Call) {
		x := c.In[0]
		dim := c.dim(c.Args.(*DimArgs).Dim, x.Rank())
		if x.Rank() == 0 {
			c.Fail("diff needs at least one dimension")
		}
		if p := c.Opt(1); p != nil {
			x = c.Local(c.Do1(Cat, &DimArgs{Dim: dim}, p, x))
		}
		n := x.Dim(dim)
		if n == 0 {
			c.Fail("diff of nothing is not modelled")
		}
		start, end := int64(1), n-1
		first := c.Local(c.Do1(Slice, &SliceArgs{Dim: dim, End: &end, Step: 1}, x))
		second := c.Local(c.Do1(Slice, &SliceArgs{Dim: dim, Start: &start, Step: 1}, x))
		c.Return(c.Do1(Sub, &BinaryArgs{}, second, first))
	},
	Source: "aten/src/ATen/native/ReduceOps.cpp: diff, diff_helper",
})
