package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// row says how a primitive operator is computed. A derivative without a
// backward is one that cannot be executed or, if it is composed, one that the
// operator table makes of further operators as they are.
type row struct {
	forward  func(x *Executor, c *op.Call) error
	backward func(x *Executor, b *op.Back) error
	composed bool
}

// rows is the table, by the names of the operator table.
var rows = map[string]row{}

func init() {
	for _, t := range []map[string]row{mapRows, binaryRows, copyRows, reduceRows, productRows, normRows, imageRows, lossRows, lookupRows, attentionRows} {
		for name, r := range t {
			if _, twice := rows[name]; twice || op.Row0(name) == nil {
				panic("runtime: operator " + name)
			}
			rows[name] = r
		}
	}
}

// composites are the composite rows that do what they say, so that their parts
// can be executed one by one. With a function, only calls that it does not
// refuse.
var composites = map[string]func(c *op.Call) error{
	"linear": nil, "matmul": nil, "mm.any": nil, "outer": nil,
	"conv1d": nil, "conv2d": nil, "conv3d": nil, "conv_transpose1d": nil, "conv_transpose2d": nil, "conv_transpose3d": nil,
	"narrow": nil, "movedim": nil, "swapaxes": nil, "swapdims": nil, "view_as": nil, "reshape_as": nil, "ravel": nil, "vstack": nil, "hstack": nil, "dstack": nil,
	"unflatten": nil, "reshape": nil, "flatten": nil, "contiguous": nil, "expand_as": nil, "getitem": nil, "repeat_interleave": nil,
	"to": nil, "float": nil, "half": nil, "bfloat16": nil, "double": nil, "long": nil, "int": nil, "bool": nil, "type_as": nil,
	"layer_norm": nil, "batch_norm": nil, "group_norm": nil,
	"softmax": nil, "log_softmax": nil, "softmin": nil, "softsign": nil, "tanhshrink": nil,
	"max_pool": nil, "adaptive_avg_pool": nil,
	"dropout": func(c *op.Call) error {
		if c.Args.(*op.DropoutArgs).P == 1 {
			return unsupported("dropout with p = 1")
		}
		return nil
	},
	"cross_entropy": func(c *op.Call) error {
		if c.Args.(*op.LossArgs).LabelSmoothing > 0 || c.In[1].DType.IsFloating() {
			return unsupported("cross_entropy with label smoothing or class probabilities")
		}
		return nil
	},
	"nll_loss": nil, "l1_loss": nil,
	"pow.any": func(c *op.Call) error {
		if len(c.In) > 1 && c.In[1] != nil {
			return unsupported("pow with a tensor as the exponent")
		}
		return nil
	},
	"embedding.any": func(c *op.Call) error {
		if c.Args.(*op.EmbeddingArgs).MaxNorm != nil {
			return unsupported("an embedding with max_norm")
		}
		return nil
	},
	"scaled_dot_product_attention": nil,
	"_scaled_dot_product_attention_math": func(c *op.Call) error {
		if optional(c.In, 3) != nil {
			return unsupported("attention by matrix products with a mask")
		}
		return nil
	},
}

// composedViews are views whose derivative is made of operators; that of the
// others puts the gradients where the views were.
var composedViews = map[string]bool{"expand": true, "view": true}

// viewGrad is the derivative of a view: the incoming gradient under another
// layout, or zeros with the gradients in the places of the views.
func (x *Executor) viewGrad(b *op.Back) error {
	y := wanted(b, 0)
	if y == nil {
		return nil
	}
	if err := x.Fill(y, 0); err != nil {
		return err
	}
	places := b.Row.View(&op.Call{Exec: b.Exec, Row: b.Row, Args: b.Args, In: []*op.Tensor{y}})
	for i, g := range b.Grads {
		if g == nil {
			continue
		}
		from, err := x.broadcast(g, places[i].Size)
		if err != nil {
			return err
		}
		if err := x.launch(kernel.Copy, []kernel.Tensor{x.at(y, places[i]), from}, nil); err != nil {
			return err
		}
	}
	return nil
}

// dim resolves a dimension that may be negative.
func dim(d, rank int) int {
	if d < 0 {
		d += rank
	}
	return d
}

// last moves dimension d to the end.
func last(t *op.Tensor, d int) tensor.Layout {
	var order []int
	for i := range t.Rank() {
		if i != d {
			order = append(order, i)
		}
	}
	return t.Permute(append(order, d))
}
