package layers

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
)

// numbers is a list that Python makes a tensor of.
type numbers []float64

// String prints the tensor as Python writes it.
func (n numbers) String() string {
	parts := make([]string, len(n))
	for i, x := range n {
		parts[i] = fmt.Sprint(x)
	}
	return "torch.tensor([" + strings.Join(parts, ", ") + "], dtype=torch.float32)"
}

// weights registers the buffer of a loss's weights, given as a list of numbers
// in the place of PyTorch's tensor; none if the argument is null.
func weights(b *module.Builder, name string) value.Value {
	v, _ := b.Args[name].([]float64)
	if v == nil {
		return value.Value{}
	}
	b.Args[name] = numbers(v)
	t := b.Buffer(name, int64(len(v)))
	b.Class.Buffers[len(b.Class.Buffers)-1].Given = v
	return t
}

// lossArgs are those of all losses, of which each takes some.
func lossArgs(b *module.Builder) *aten.LossArgs {
	return op.BindArgs(&aten.LossArgs{}, b.Args).(*aten.LossArgs)
}

// loss defines a loss module that calls the function of the same arguments.
// Its tensors are inputs, then the buffers of the given names.
func loss(sig, inputs string, row *op.Op, buffers ...string) *module.Layer {
	return define(module.Layer{Sig: sig, Inputs: inputs, Build: func(b *module.Builder) {
		args := append([]value.Value(nil), b.Ins...)
		for _, name := range buffers {
			args = append(args, weights(b, name))
		}
		b.Finish(b.Do(row, lossArgs(b), args...))
	}})
}

// reduction is an argument that losses share.
const reduction = "reduction: str(none|mean|sum) = 'mean'"

var (
	CrossEntropyLoss = loss("nn.CrossEntropyLoss(*, weight: floats? = None, ignore_index: int = -100, "+reduction+", label_smoothing: float = 0.0)",
		"input target", aten.CrossEntropy, "weight")
	NLLLoss           = loss("nn.NLLLoss(*, weight: floats? = None, ignore_index: int = -100, "+reduction+")", "input target", aten.NLLLossOf, "weight")
	MSELoss           = loss("nn.MSELoss(*, "+reduction+")", "input target", aten.MSELoss)
	L1Loss            = loss("nn.L1Loss(*, "+reduction+")", "input target", aten.L1Loss)
	SmoothL1Loss      = loss("nn.SmoothL1Loss(*, "+reduction+", beta: float = 1.0)", "input target", aten.SmoothL1Loss)
	HuberLoss         = loss("nn.HuberLoss("+reduction+", delta: float = 1.0)", "input target", aten.HuberLoss)
	BCELoss           = loss("nn.BCELoss(*, weight: floats? = None, "+reduction+")", "input target", aten.BinaryCrossEntropy, "weight")
	BCEWithLogitsLoss = loss("nn.BCEWithLogitsLoss(*, weight: floats? = None, "+reduction+", pos_weight: floats? = None)", "input target",
		aten.BinaryCrossEntropyWithLogits, "weight", "pos_weight")
	KLDivLoss         = loss("nn.KLDivLoss(*, reduction: str(none|batchmean|sum|mean) = 'mean', log_target: bool = False)", "input target", aten.KLDivFunction)
	TripletMarginLoss = loss("nn.TripletMarginLoss(margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, *, "+reduction+")",
		"anchor positive negative", aten.TripletMarginLoss)
	CosineEmbeddingLoss = loss("nn.CosineEmbeddingLoss(margin: float = 0.0, *, "+reduction+")", "input1 input2 target", aten.CosineEmbeddingLoss)
)
