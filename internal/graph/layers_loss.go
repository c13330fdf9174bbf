package graph

import "github.com/memplan/memplan/internal/op"

func (b *builder) lossArgs() *op.LossArgs {
	return &op.LossArgs{
		Reduction: b.str("reduction"), IgnoreIndex: b.int("ignore_index"), LabelSmoothing: b.float("label_smoothing"),
	}
}

func init() {
	layer(Layer{
		Sig:    "nn.CrossEntropyLoss(*, ignore_index: int = -100, reduction: str(none|mean|sum) = 'mean', label_smoothing: float = 0.0)",
		Inputs: "input target",
		Build: func(b *builder) {
			b.finish([]val{b.do("cross_entropy", b.lossArgs(), b.in(0), b.in(1), val{})})
		},
	})
	layer(Layer{
		Sig:    "nn.NLLLoss(*, ignore_index: int = -100, reduction: str(none|mean|sum) = 'mean')",
		Inputs: "input target",
		Build: func(b *builder) {
			b.finish([]val{b.do("nll_loss", b.lossArgs(), b.in(0), b.in(1), val{})})
		},
	})
	for name, row := range map[string]string{"MSELoss": "mse_loss", "SmoothL1Loss": "smooth_l1_loss"} {
		layer(Layer{
			Sig:    "nn." + name + "(*, reduction: str(none|mean|sum) = 'mean')",
			Inputs: "input target",
			Build:  func(b *builder) { b.finish([]val{b.do(row, b.lossArgs(), b.in(0), b.in(1))}) },
		})
	}
}
