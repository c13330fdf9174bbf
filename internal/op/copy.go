package op

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// CloneArgs chooses the order of a clone's dimensions.
type CloneArgs struct {
	Contiguous   bool // row-major; else the source's own order
	ChannelsLast bool
}

// Clone is a copy.
var Clone = define(Op{
	Name: "clone", Eval: copied, Copies: true, Sig: "torch.clone(input)", Args: &CloneArgs{}, Run: func(c *Call) {
		x := c.In[0]
		if a, ok := c.Args.(*CloneArgs); ok && a != nil && a.Contiguous {
			c.Return(c.New(tensor.Contiguous(x.Size), x.DType))
			return
		}
		if a, ok := c.Args.(*CloneArgs); ok && a != nil && a.ChannelsLast {
			c.Return(c.New(tensor.ChannelsLast(x.Size), x.DType))
			return
		}
		c.Return(c.NewLike(x))
	},
	Node: "CloneBackward0", Grad: func(b *Back) { b.Pass(0) },
})

// Contiguous is the tensor itself if it is row-major, else a copy that is.
var Contiguous = define(Op{
	Name: "contiguous", Sig: "Tensor.contiguous(self)", Composite: true, Run: func(c *Call) {
		if c.In[0].IsContiguous() {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(Clone, &CloneArgs{Contiguous: true}, c.In[0]))
	},
})

// ToCopyArgs is the element type to convert to.
type ToCopyArgs struct {
	DType tensor.DType `arg:"dtype"`
}

// ToCopy converts the element type; its gradient is converted back.
var ToCopy = define(Op{
	Name: "_to_copy", Eval: copied, Copies: true, Args: &ToCopyArgs{}, Run: func(c *Call) {
		c.Return(c.New(c.In[0].LikeDense(), c.Args.(*ToCopyArgs).DType))
	},
	Node: "ToCopyBackward0",
})

var _ = ToCopy.derive(func(b *Back) {
	b.Set(0, b.Do1(To, &ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0]))
})

// To is the tensor itself if it has the type already, else a converted copy.
var To = define(Op{
	Name: "to", Sig: "Tensor.to(self, dtype: dtype)", Args: &ToCopyArgs{}, Composite: true, Run: to,
})

func to(c *Call) {
	if c.In[0].DType == c.Args.(*ToCopyArgs).DType {
		c.ReturnSelf(0)
		return
	}
	c.Return(c.Do1(ToCopy, c.Args, c.In[0]))
}

// cast defines x.float() and its like.
func cast(name string, d tensor.DType) *Op {
	return define(Op{Name: name, Sig: "Tensor." + name + "(self)", Composite: true, Run: func(c *Call) {
		c.Return(c.Do1(To, &ToCopyArgs{DType: d}, c.In[0]))
	}})
}

// The conversions by name.
var (
	_ = cast("float", tensor.Float32)
	_ = cast("half", tensor.Float16)
	_ = cast("bfloat16", tensor.BFloat16)
	_ = cast("double", tensor.Float64)
	_ = cast("long", tensor.Int64)
	_ = cast("int", tensor.Int32)
	_ = cast("bool", tensor.Bool)
)

// TypeAs converts to the type of another tensor.
var _ = define(Op{
	Name: "type_as", Sig: "Tensor.type_as(self, other)", Composite: true, Run: func(c *Call) {
		c.Return(c.Do1(To, &ToCopyArgs{DType: c.In[1].DType}, c.In[0]))
	},
})

// Detach is an alias outside of the graph.
var Detach = define(Op{
	Name: "detach", Eval: shared, Sig: "Tensor.detach(self)", Run: func(c *Call) {
		c.Return(c.Alias(c.In[0], c.In[0].Layout, c.In[0].DType))
	},
})

// Cat joins tensors along a dimension; its gradients are views of the incoming
// one, without a copy.
var Cat = define(Op{
	Name: "cat", Eval: evalCat, Sig: "torch.cat(tensors: tensors, dim: int = 0)", Args: &DimArgs{},
	Run: func(c *Call) {
		at := max(0, slices.IndexFunc(c.In, func(t *Tensor) bool { return !skipped(t.Layout) }))
		first := c.In[at]
		d := c.dim(c.Args.(*DimArgs).Dim, first.Rank())
		size, dt := first.Size, c.In[0].DType
		last := true // the memory format that all inputs suggest
		for i, t := range c.In {
			last = last && t.IsChannelsLast()
			dt = tensor.Promote(dt, t.DType)
			if i == at || skipped(t.Layout) && !skipped(first.Layout) {
				continue
			}
			if t.Rank() != first.Rank() || t.Size.Set(d, 0) != first.Size.Set(d, 0) {
				c.Fail("shapes %v and %v do not join along dimension %d", first.Size, t.Size, d)
			}
			size = size.Set(d, size.At(d)+t.Dim(d))
		}
		c.Return(c.New(tensor.InFormat(size, last), dt))
	},
	Node: "CatBackward0",
	Grad: func(b *Back) { // cat_tensors_backward
		g := b.Grads[0]
		d := b.dim(b.Args.(*DimArgs).Dim, g.Rank())
		at := int64(0)
		for i, m := range b.InM {
			switch {
			case skipped(m.Layout):
				if b.Need(i) {
					b.Set(i, b.New(m.Layout, g.DType))
				}
				continue
			case b.Need(i):
				b.Set(i, b.ViewOf(g, g.Narrow(d, at, m.Dim(d), 1)))
			}
			at += m.Dim(d)
		}
	},
})

// skipped reports whether cat leaves a tensor out whatever the shapes of the
// others, as it does with torch.tensor([]) (cat_should_skip_tensor).
func skipped(l tensor.Layout) bool { return l.Rank() == 1 && l.Numel() == 0 }

// Stack joins tensors along a new dimension: cat, and a view of what it returns
// if the dimension is not the last, so that its memory format is cat's.
var Stack = define(Op{
	Name: "stack", Eval: evalStack, Sig: "torch.stack(tensors: tensors, dim: int = 0)", Args: &DimArgs{},
	Run: func(c *Call) {
		first := c.In[0]
		d := c.dim(c.Args.(*DimArgs).Dim, first.Rank()+1)
		dt, last := first.DType, first.IsChannelsLast()
		for _, t := range c.In[1:] {
			if t.Size != first.Size {
				c.Fail("shapes %v and %v do not stack", first.Size, t.Size)
			}
			dt = tensor.Promote(dt, t.DType)
			last = last && t.IsChannelsLast()
		}
		size, n := first.Size.Insert(d, int64(len(c.In))), int64(len(c.In))
		layout := tensor.Contiguous(size)
		if last && d < first.Rank() {
			joined := tensor.InFormat(first.Size.Set(d, n*first.Dim(d)), last)
			if l, ok := joined.View(size); ok {
				layout = l
			}
		}
		c.Return(c.New(layout, dt))
	},
	Node: "StackBackward0", Source: "aten/src/ATen/native/TensorShape.cpp: stack",
	Grad: func(b *Back) {
		g := b.Grads[0]
		d := b.dim(b.Args.(*DimArgs).Dim, g.Rank())
		for i := range b.InM {
			if b.Need(i) {
				b.Set(i, b.ViewOf(g, g.Select(d, int64(i))))
			}
		}
	},
})

// evalStack copies each into its place; the derivative are views.
var evalStack = &Eval{InParts: true, Forward: func(m Machine, c *Call) error {
	y := c.Out[0]
	d := array.Dim(c.Args.(*DimArgs).Dim, y.Rank())
	for i, t := range c.In {
		if err := m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, y.Select(d, int64(i))), as(m, t)}, nil); err != nil {
			return err
		}
	}
	return nil
}}
