package optim

import "errors"

// SparseAdam is for sparse gradients, which no layer that is modelled makes.
var SparseAdam = define(Row{
	Name: "SparseAdam", Args: &Common{}, LoopByDefault: true, GPUOnly: true, RefuseSharded: wholeOnly, Bounds: []bound{nonNegative("lr"), nonNegative("eps"), betas},
	Sig: "torch.optim.SparseAdam(lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, maximize: bool = False)",
	Refuse: func(any) (string, error) {
		return "", errors.New("SparseAdam refuses dense gradients; sparse ones (Embedding with sparse: true) are not modelled")
	},
	ForLoop: func(*Call, []*Param) {},
})
