package aten

import "testing"

// TestFlatWeights: the buffer of nn.LSTM(16, 8) has room for biases without any, too.
func TestFlatWeights(t *testing.T) {
	for _, bias := range []bool{false, true} {
		a := &RNNArgs{Gates: 4, Hidden: 8, Layers: 1, Bias: bias}
		if n := a.FlatWeights(16); n != 4*8*(16+8)+2*4*8 {
			t.Errorf("bias %v: %d elements", bias, n)
		}
	}
}
