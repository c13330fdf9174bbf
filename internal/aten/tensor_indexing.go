package aten

import (
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/torchver"
)

// GetItemArgs is the text between the brackets of x[...].
type GetItemArgs struct {
	Index string `arg:"index"`
}

// Python's x[...] with integers, slices, None and an ellipsis. Every integer and
// every slice makes a view, ":" too. Only a slice from 0 to the very size, among
// several indices, is left out (applySlice in aten/src/ATen/TensorIndexing.h). A list of
// one integer, [-1], becomes a tensor, by which the result is indexed after all views.
var _ = define(op.Op{
	Name: "getitem", Sig: "[] getitem(self, index: str)", Args: &GetItemArgs{}, Composite: true, Run: func(c *op.Call) {
		x := c.Keep(c.In[0])
		d, views := 0, 0
		var at *int64 // of a list, for dimension along
		along := 0
		step := func(r *op.Op, args any) {
			y := c.Do1(r, args, x)
			c.Drop(x)
			x = y
			views++
		}
		parts := strings.Split(c.Args.(*GetItemArgs).Index, ",")
		for i, part := range parts {
			part = strings.TrimSpace(part)
			switch {
			case part == "None":
				step(Unsqueeze, &DimArgs{Dim: d})
				d++
			case part == "...": // no view
				d = x.Rank()
				for _, p := range parts[i+1:] {
					if strings.TrimSpace(p) != "None" {
						d--
					}
				}
			case strings.Contains(part, ":"):
				if d >= x.Rank() {
					c.Fail("too many indices for shape %v", c.In[0].Size)
				}
				if a := sliceOf(c, part, d); len(parts) == 1 || !a.whole(x.Dim(d), c.Env().Torch.Has(torchver.WholeSlicesSkipped)) {
					step(Slice, a)
				}
				d++
			default:
				number, list := strings.CutPrefix(part, "[")
				if list {
					number, list = strings.CutSuffix(number, "]")
				}
				n, err := strconv.ParseInt(number, 10, 48)
				if err != nil || list && at != nil {
					c.Fail("index %q is not an integer, a slice, None, ... or the only list of one integer", part)
				}
				if d >= x.Rank() {
					c.Fail("too many indices for shape %v", c.In[0].Size)
				}
				if !list {
					step(Select, &SelectArgs{Dim: d, Index: n})
					continue
				}
				if n < 0 {
					n += x.Dim(d)
				}
				if n < 0 || n >= x.Dim(d) {
					c.Fail("index %s is out of bounds for dimension %d of shape %v", part, d, x.Size)
				}
				at, along = &n, d
				d++
			}
		}
		if at != nil { // sequenceToVariable in torch/csrc/autograd/python_variable_indexing.cpp
			index := c.Do1(Arange, &ArangeArgs{Start: op.Number{Set: true, Value: float64(*at)}, End: op.Number{Set: true, Value: float64(*at + 1)}})
			y := c.Do1(IndexTensor, &DimArgs{Dim: along}, x, index)
			c.Drop(x)
			c.Drop(index)
			x = y
			views++
		}
		if views == 0 { // at::alias
			step(View, &ShapeArgs{Shape: x.Size.Slice()})
		}
		c.Return(x)
	},
})

// whole reports whether the slice says in so many words that it leaves a
// dimension of n as it is, or, if that counts, by leaving out its end.
func (a *SliceArgs) whole(n int64, open bool) bool {
	return (a.Start == nil || *a.Start == 0) && (a.End == nil && open || a.End != nil && *a.End == n) && a.Step == 1
}

// sliceOf reads start:end:step.
func sliceOf(c *op.Call, s string, dim int) *SliceArgs {
	a := &SliceArgs{Dim: dim, Step: 1}
	for i, f := range strings.Split(s, ":") {
		f = strings.TrimSpace(f)
		if f == "" {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 48)
		switch {
		case err != nil || i > 2:
			c.Fail("slice %q is not start:end:step", s)
		case i == 0:
			a.Start = &n
		case i == 1:
			a.End = &n
		default:
			a.Step = n
		}
	}
	return a
}

// NarrowArgs is a range of one dimension.
type NarrowArgs struct {
	Dim    int   `arg:"dim"`
	Start  int64 `arg:"start"`
	Length int64 `arg:"length"`
}

// Narrow is a slice by start and length.
var _ = define(op.Op{
	Name: "narrow", Sig: "Tensor.narrow(self, dim: int, start: int, length: int)", Args: &NarrowArgs{}, Composite: true, Run: func(c *op.Call) {
		a, x := c.Args.(*NarrowArgs), c.In[0]
		n := x.Dim(c.Dim(a.Dim, x.Rank()))
		start := a.Start
		if start < 0 {
			start += n
		}
		if start < 0 || a.Length < 0 || start+a.Length > n {
			c.Fail("start %d and length %d do not fit dimension %d of shape %v", a.Start, a.Length, a.Dim, x.Size)
		}
		end := start + a.Length
		c.Return(c.Do1(Slice, &SliceArgs{Dim: a.Dim, Start: &start, End: &end, Step: 1}, x))
	},
})
