package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// ToCopyArgs is the element type to convert to, and the format of the copy.
type ToCopyArgs struct {
	DType  tensor.DType
	Format tensor.MemoryFormat
	Device bool // the options name a device, too, as those of type_as
}

// toTypes are the arguments of conversions to each type, which no operator changes.
var toTypes = func() (t [256]ToCopyArgs) {
	for d := range t {
		t[d].DType = tensor.DType(d)
	}
	return t
}()

// toType are the arguments of a conversion to a type.
func toType(d tensor.DType) *ToCopyArgs { return &toTypes[d] }

// ToCopy converts the element type; its gradient is converted back.
var ToCopy = define(op.Op{
	Name: "_to_copy", Eval: op.Copied, Copies: true, Args: &ToCopyArgs{}, Run: func(c *op.Call) {
		c.Return(c.New(inFormat(c), c.Args.(*ToCopyArgs).DType))
	},
	Node: "ToCopyBackward0",
})

var _ = ToCopy.Derive(func(b *op.Back) {
	b.Set(0, b.Do1(To, toType(b.InM[0].DType), b.Grads[0]))
})

// To is the tensor itself if it has the type already, and suggests the format, else a
// converted copy (to_will_alias).
var To = define(op.Op{Name: "to.dtype", Args: &ToCopyArgs{}, Composite: true, Run: to})

func to(c *op.Call) {
	a, x := c.Args.(*ToCopyArgs), c.In[0]
	if x.DType == a.DType && (a.Format == "" || a.Format == tensor.PreserveFormat || a.Format == x.Suggests()) {
		c.ReturnSelf(0)
		return
	}
	c.Return(c.Do1(ToCopy, a, x))
}

// ToArgs are the arguments of Tensor.to.
type ToArgs struct {
	DType  *tensor.DType       `arg:"dtype"` // nil: its own
	Format tensor.MemoryFormat `arg:"memory_format"`
}

// The conversion as it is written.
var _ = define(op.Op{
	Name: "to", Sig: "Tensor.to(self, dtype: dtype? = None, *, memory_format: format(preserve_format|contiguous_format|channels_last|channels_last_3d) = None)",
	Args: &ToArgs{}, Composite: true, Run: func(c *op.Call) {
		a := c.Args.(*ToArgs)
		to := &ToCopyArgs{DType: c.In[0].DType, Format: a.Format}
		if a.DType != nil {
			to.DType = *a.DType
		}
		c.Return(c.Do1(To, to, c.In[0]))
	},
})

// cast defines x.float() and its like.
func cast(name string, d tensor.DType) *op.Op {
	return define(op.Op{Name: name, Sig: "Tensor." + name + "(self)", Composite: true, Run: func(c *op.Call) {
		c.Return(c.Do1(To, toType(d), c.In[0]))
	}})
}

// The conversions by name.
var (
	Float = cast("float", tensor.Float32)

	_ = cast("half", tensor.Float16)
	_ = cast("bfloat16", tensor.BFloat16)
	_ = cast("double", tensor.Float64)
	_ = cast("long", tensor.Int64)
	_ = cast("int", tensor.Int32)
	_ = cast("bool", tensor.Bool)
)

// The conversion to the type of another tensor.
var _ = define(op.Op{
	Name: "type_as", Sig: "Tensor.type_as(self, other)", Composite: true, Run: func(c *op.Call) {
		c.Return(c.Do1(To, toType(c.In[1].DType), c.In[0]))
	},
})

// ToAutocast is x.to(torch.get_autocast_dtype("cuda")); without autocast, x itself.
var ToAutocast = define(op.Op{
	Name: "to_autocast", Sig: "to_autocast(input)", Composite: true, Run: func(c *op.Call) {
		if !c.Env().Autocast {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(To, toType(c.Env().AutocastDType), c.In[0]))
	},
})

// Library modules remember the type of a tensor and convert others to it. The
// memory of a type is a tensor without elements, which takes no memory.
var (
	// DTypeOf is x.dtype.
	DTypeOf = define(op.Op{Name: "dtype_of", Eval: op.Nothing, Run: func(c *op.Call) {
		c.Return(c.New(tensor.Contiguous(tensor.D(0)), c.In[0].DType))
	}})

	// ToTypeOf is x.to(y.dtype).
	ToTypeOf = define(op.Op{
		Name: "to_type_of", Args: &ToTypeOfArgs{}, Composite: true, Run: func(c *op.Call) {
			if a, ok := c.Args.(*ToTypeOfArgs); ok && a != nil && a.Plain && c.Env().Autocast {
				c.ReturnSelf(0)
				return
			}
			c.Return(c.Do1(To, toType(c.In[1].DType), c.In[0]))
		},
	})
)

// ToTypeOfArgs says when a tensor is converted.
type ToTypeOfArgs struct {
	Plain bool // not under autocast
}

// DataToTypeOf is x.data.to(y.dtype): autograd does not see it.
var DataToTypeOf = define(op.Op{
	Name: "data_to_type_of", Composite: true, Run: func(c *op.Call) {
		x, d := c.In[0], c.In[1].DType
		if x.DType == d {
			c.ReturnSelf(0)
			return
		}
		c.WithoutGrad(func() { c.Return(c.Do1(ToCopy, &ToCopyArgs{DType: d}, x)) })
	},
})
