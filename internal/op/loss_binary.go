package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// The losses of independent probabilities. Inputs are input, target, weight
// and, with logits, pos_weight.
var (
	BinaryCrossEntropy = define(Op{
		Name: "binary_cross_entropy", Takes: (*Call).floats, Sig: "F.binary_cross_entropy(input, target, weight: tensor? = None, *, " + lossSig + ")", Args: &LossArgs{},
		Cast: CastForbidden, Run: func(c *Call) {
			x := c.In[0]
			c.sameShape(x, c.In[1])
			if c.In[1].DType != x.DType {
				c.Fail("target must be of the input's type %v, not %v", x.DType, c.In[1].DType)
			}
			c.broadcastWeight(x, c.Opt(2), "weight")
			loss := c.NewLike(x)
			if c.Args.(*LossArgs).Reduction != "none" { // the scalar is copied into the storage of the elements
				c.Drop(c.reduceLoss(loss))
				scalar := c.Alias(loss, tensor.Contiguous(tensor.D()), x.DType)
				c.Drop(loss)
				loss = scalar
			}
			c.Return(loss)
		},
		Save: []Save{In(0), In(1), In(2)}, Node: "BinaryCrossEntropyBackward0",
		Grad: func(b *Back) {
			for i := range 2 { // one buffer each, scaled in place
				if b.Need(i) {
					b.Set(i, b.NewLike(b.SavedIn(0)))
				}
			}
		},
		Eval: criterion{
			inputs: 3,
			of:     func(x []float64, _ any) float64 { return array.CrossEntropy(x[0], x[1], x[2]) },
			slopes: func(x []float64, _ any) (float64, float64) { return array.CrossEntropySlopes(x[0], x[1], x[2]) },
		}.eval(),
		Source: "aten/src/ATen/native/cuda/Loss.cu; torch/csrc/autograd/FunctionsManual.cpp: binary_cross_entropy_target_backward",
	})
	BinaryCrossEntropyWithLogits = define(Op{
		Name: "binary_cross_entropy_with_logits", Takes: (*Call).floats, Args: &LossArgs{}, Cast: CastFP32, Run: runBCEWithLogits,
		Sig:  "F.binary_cross_entropy_with_logits(input, target, weight: tensor? = None, *, " + lossSig + ", pos_weight: tensor? = None)",
		Save: []Save{In(3), In(0), In(1), In(2)}, Node: "BinaryCrossEntropyWithLogitsBackward0", Grad: gradBCEWithLogits,
		Eval: criterion{
			inputs: 4,
			of:     func(x []float64, _ any) float64 { return array.LogitEntropy(x[0], x[1], x[2], x[3]) },
			slopes: func(x []float64, _ any) (float64, float64) { return array.LogitEntropySlopes(x[0], x[1], x[2], x[3]) },
		}.eval(),
		Source: "aten/src/ATen/native/Loss.cpp; torch/csrc/autograd/FunctionsManual.cpp: binary_cross_entropy_with_logits_backward",
	})
)

// broadcastWeight refuses a weight that is not of the input's shape when
// broadcast.
func (c *Call) broadcastWeight(x, weight *Tensor, name string) {
	if weight == nil {
		return
	}
	if size, err := tensor.Broadcast(x.Size, weight.Size); err != nil || size != x.Size {
		c.Fail("%s of shape %v does not broadcast to shape %v", name, weight.Size, x.Size)
	}
}

func runBCEWithLogits(c *Call) {
	x, target := c.In[0], c.In[1]
	c.sameShape(x, target)
	c.broadcastWeight(x, c.Opt(2), "weight")
	c.broadcastWeight(x, c.Opt(3), "pos_weight")
	logSigmoid := c.NewLike(x)
	if p := c.Opt(3); p != nil { // (pos_weight - 1).mul(target).add_(1)
		less := c.NewLike(p)
		factor := c.New(c.elementwise(less, target), resultType(p, target, Number{}))
		c.Drop(less, factor)
	}
	loss := c.New(c.elementwise(target), target.DType) // (1 - target).mul_(input).sub_(log_sigmoid)
	c.Return(c.reduceLoss(loss))
	c.Drop(loss, logSigmoid)
}

func gradBCEWithLogits(b *Back) {
	x, target, pos := b.SavedIn(0), b.SavedIn(1), b.SavedIn(3)
	if b.Need(0) {
		if pos == nil { // input.sigmoid().sub_(target).mul_(grad)
			b.Set(0, b.NewLike(x))
		} else { // t.add(1).sub_(target).mul_(input.sigmoid()).sub_(t), t = pos_weight * target
			t := b.Do1(MulTensor, nil, pos, target)
			b.Set(0, b.NewLike(t))
			sigmoid := b.NewLike(x)
			b.Drop(sigmoid, t)
		}
	}
	if b.Need(1) {
		minus := b.NewLike(x)
		if pos == nil { // -self * grad
			b.Set(1, b.Do1(MulTensor, nil, minus, b.Grads[0]))
		} else { // log_sigmoid(-self).sub_(log_sigmoid(self).mul_(pos_weight)).mul_(grad)
			b.Set(1, b.NewLike(minus))
			b.Drop(b.NewLike(x))
		}
		b.Drop(minus)
	}
}
