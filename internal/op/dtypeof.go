package op

import "github.com/memplan/memplan/internal/tensor"

// Library modules remember the type of a tensor and convert others to it. The
// memory of a type is a tensor without elements, which takes no memory.
var (
	// DTypeOf is x.dtype.
	DTypeOf = define(Op{Name: "dtype_of", Eval: nothing, Run: func(c *Call) {
		c.Return(c.New(tensor.Contiguous(tensor.D(0)), c.In[0].DType))
	}})

	// ToTypeOf is x.to(y.dtype).
	ToTypeOf = define(Op{
		Name: "to_type_of", Args: &ToTypeOfArgs{}, Composite: true, Run: func(c *Call) {
			if a, ok := c.Args.(*ToTypeOfArgs); ok && a != nil && a.Plain && c.Env().Autocast {
				c.ReturnSelf(0)
				return
			}
			c.Return(c.Do1(To, &ToCopyArgs{DType: c.In[1].DType}, c.In[0]))
		},
	})
)

// ToTypeOfArgs says when a tensor is converted.
type ToTypeOfArgs struct {
	Plain bool // not under autocast
}

// DataToTypeOf is x.data.to(y.dtype): autograd does not see it.
var DataToTypeOf = define(Op{
	Name: "data_to_type_of", Composite: true, Run: func(c *Call) {
		x, d := c.In[0], c.In[1].DType
		if x.DType == d {
			c.ReturnSelf(0)
			return
		}
		c.withoutGrad(func() { c.Return(c.Do1(ToCopy, &ToCopyArgs{DType: d}, x)) })
	},
})
