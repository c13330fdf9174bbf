package runtime

import (
	"testing"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
)

// notRun are the operators of the table that memplan run does not compute, with the
// reason.
var notRun = map[*op.Op]string{
	aten.MaskedSelect: "the size of the result depends on the data, which memplan refuses for every command",
	aten.Nonzero:      "the same", aten.Argwhere: "the same", aten.Unique: "the same", aten.Bincount: "the same",
	aten.NonzeroCount:     "the number of elements is the data's",
	aten.FlashAttnForward: "a kernel of the package flash-attn", aten.FlashAttnBackward: "the same",
	aten.FlashAttnVarlenForward: "the same", aten.FlashAttnVarlenBackward: "the same",
	aten.FlashAttn3Forward: "a kernel of flash-attn 3", aten.FlashAttn3Backward: "the same",
	aten.AddTimesInPlace: "of OFT, which is planned alone", aten.PutPairs: "the same",
	aten.SolveRightEx: "of OFT and BOFT, which are planned alone", aten.EyeOf: "the same", aten.BlockDiagonal: "the same",
	aten.MulScalar: "a part of derivatives, which are computed as a whole",
}

// TestEveryOperator goes over the table of operators: what is not refused by name must
// be computed, and so must the derivative of what has one.
func TestEveryOperator(t *testing.T) {
	for _, r := range aten.Rows() {
		e, has := rowEval(r), r.Eval != nil
		why, refused := notRun[r]
		switch {
		case r.Composite: // its parts are computed
		case refused == has:
			t.Errorf("%s: computed %v, but listed as refused %v (%s)", r.Name, has, refused, why)
		case has && r.Grad != nil && e.Backward == nil && !e.InParts:
			t.Errorf("%s has a derivative, which is not computed", r.Name)
		}
	}
}
