package layers

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
)

// lossOf defines a loss module that calls the function of the same arguments.
// Its tensors are inputs, then the buffers of the given names.
func lossOf(sig, inputs string, row *op.Op, buffers ...string) *module.Layer {
	return define(module.Layer{Sig: sig, Inputs: inputs, Build: func(b *module.Builder) {
		args := append([]value.Value(nil), b.Ins...)
		a := op.BindArgs(row.Args, b.Args)
		for _, name := range buffers {
			args = append(args, weights(b, name))
		}
		b.Finish(b.Do(row, a, args...))
	}})
}

var (
	HingeEmbeddingLoss            = lossOf("nn.HingeEmbeddingLoss(margin: float = 1.0, *, "+reduction+")", "input target", aten.HingeEmbeddingLoss)
	MarginRankingLoss             = lossOf("nn.MarginRankingLoss(margin: float = 0.0, *, "+reduction+")", "input1 input2 target", aten.MarginRankingLoss)
	MultiMarginLoss               = lossOf("nn.MultiMarginLoss(p: int = 1, margin: float = 1.0, weight: floats? = None, *, "+reduction+")", "input target", aten.MultiMarginLoss, "weight")
	MultiLabelMarginLoss          = lossOf("nn.MultiLabelMarginLoss(*, "+reduction+")", "input target", aten.MultilabelMarginLoss)
	MultiLabelSoftMarginLoss      = lossOf("nn.MultiLabelSoftMarginLoss(weight: floats? = None, *, "+reduction+")", "input target", aten.MultilabelSoftMarginLoss, "weight")
	CTCLoss                       = lossOf("nn.CTCLoss(blank: int = 0, "+reduction+", zero_infinity: bool = False)", "log_probs targets input_lengths target_lengths", aten.CTCLoss)
	SoftMarginLoss                = lossOf("nn.SoftMarginLoss(*, "+reduction+")", "input target", aten.SoftMarginLoss)
	PoissonNLLLoss                = lossOf("nn.PoissonNLLLoss(log_input: bool = True, full: bool = False, *, eps: float = 1e-08, "+reduction+")", "input target", aten.PoissonNLLLoss)
	GaussianNLLLoss               = lossOf("nn.GaussianNLLLoss(*, full: bool = False, eps: float = 1e-06, "+reduction+")", "input target var", aten.GaussianNLLLoss)
	TripletMarginWithDistanceLoss = lossOf("nn.TripletMarginWithDistanceLoss(*, margin: float = 1.0, swap: bool = False, "+reduction+")", "anchor positive negative",
		aten.TripletMarginWithDistanceLoss)
)
