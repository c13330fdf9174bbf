package cuda

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

var lookupPlans = map[*kernel.Kernel]planner{
	kernel.Embedding: func(c *kernel.Call) ([]launch, error) {
		y, weight, index := &c.T[0], &c.T[1], &c.T[2]
		p := args{}.ints(weight.Size.At(0)).sizes(y.Size.Slice()).whole(y).whole(weight).whole(index)
		return each("embedding", y.Numel(), p), nil
	},
	kernel.EmbeddingGrad: func(c *kernel.Call) ([]launch, error) {
		gweight, g, index := &c.T[0], &c.T[1], &c.T[2]
		p := args{}.ints(c.I[0], index.Numel(), index.Size.At(1), gweight.Size.At(1)).whole(gweight).whole(g).whole(index)
		return []launch{{"embedding_grad", gweight.Size.At(0), 1, p}}, nil
	},
	kernel.Index: func(c *kernel.Call) ([]launch, error) {
		y, x, index := &c.T[0], &c.T[1], &c.T[2]
		if y.DType != x.DType || index.DType != tensor.Int64 {
			return nil, unsupported(c, fmt.Sprintf("is not computed of %v by %v into %v", x.DType, index.DType, y.DType))
		}
		p := args{}.ints(x.Size.At(1), x.DType.Size()).sizes(y.Size.Slice()).whole(y).whole(x).whole(index)
		return each("index_rows", y.Numel(), p), nil
	},
	kernel.IndexGrad: func(c *kernel.Call) ([]launch, error) {
		gx, g, index := &c.T[0], &c.T[1], &c.T[2]
		p := args{}.ints(gx.Size.At(1), index.Size.At(0), gx.Size.At(2)).whole(gx).whole(g).whole(index)
		return []launch{{"index_grad", gx.Size.At(0) * gx.Size.At(1), 1, p}}, nil
	},
	kernel.IndexPairs: func(c *kernel.Call) ([]launch, error) {
		y, x, first, second := &c.T[0], &c.T[1], &c.T[2], &c.T[3]
		if y.DType != x.DType || first.DType != tensor.Int64 || second.DType != tensor.Int64 {
			return nil, unsupported(c, fmt.Sprintf("is not computed of %v by %v and %v into %v", x.DType, first.DType, second.DType, y.DType))
		}
		p := args{}.ints(x.Size.At(0), x.Size.At(1), x.DType.Size()).sizes(y.Size.Slice()).whole(y).whole(x).whole(first).whole(second)
		return each("index_pairs", y.Numel(), p), nil
	},
	kernel.IndexPairsGrad: func(c *kernel.Call) ([]launch, error) {
		gx, g, first, second := &c.T[0], &c.T[1], &c.T[2], &c.T[3]
		p := args{}.ints(gx.Size.At(0), gx.Size.At(1), first.Size.At(0), gx.Size.At(2)).whole(gx).whole(g).whole(first).whole(second)
		return []launch{{"index_pairs_grad", gx.Size.At(0) * gx.Size.At(1), 1, p}}, nil
	},
	kernel.EmbeddingBag: func(c *kernel.Call) ([]launch, error) {
		y, weight, index := operand(c, "y"), operand(c, "weight"), operand(c, "index")
		p := args{}.ints(c.I...).ints(weight.Size.At(0), index.Size.At(0)).sizes(y.Size.Slice())
		for i := range c.T {
			p = p.whole(&c.T[i])
		}
		return each("embedding_bag", y.Numel(), p), nil
	},
	kernel.EmbeddingBagGrad: func(c *kernel.Call) ([]launch, error) {
		gweight, index := operand(c, "gweight"), operand(c, "index")
		p := args{}.ints(c.I...).ints(index.Size.At(0), gweight.Size.At(1))
		for i := range c.T {
			p = p.whole(&c.T[i])
		}
		return []launch{{"embedding_bag_grad", gweight.Size.At(0), 1, p}}, nil
	},
	kernel.Arange: func(c *kernel.Call) ([]launch, error) {
		y := &c.T[0]
		return each("arange", y.Numel(), args{}.doubles(c.F...).sizes(y.Size.Slice()).whole(y)), nil
	},
	kernel.NLLLoss: func(c *kernel.Call) ([]launch, error) {
		x, target := operand(c, "x"), operand(c, "target")
		p := args{}.ints(c.I[0], c.I[1], x.Size.At(0), x.Size.At(1), x.Size.At(2)).whole(&c.T[0]).whole(operand(c, "total")).
			whole(x).whole(target).whole(operand(c, "weight"))
		return []launch{{"nll_loss", 1, 1, p}}, nil
	},
	kernel.NLLLossGrad: func(c *kernel.Call) ([]launch, error) {
		gx := &c.T[0]
		p := args{}.ints(c.I[0], c.I[1], gx.Size.At(0), gx.Size.At(1), gx.Size.At(2)).whole(gx).whole(operand(c, "g")).
			whole(operand(c, "target")).whole(operand(c, "weight")).whole(operand(c, "total"))
		return each("nll_loss_grad", gx.Numel(), p), nil
	},
}

func init() {
	anyType[kernel.Arange], anyType[kernel.Index], anyType[kernel.IndexPairs] = true, true, true
}
