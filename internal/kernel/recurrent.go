package kernel

// Cells of recurrent layers, of [batch, hidden]: from the products x of the input and h of
// the hidden state with their weights, gate by gate, the biases b and d that are added to
// them, and the old state, they make the hidden state and what the derivative reads, which
// may lie where x does. Derivatives have the gradient of the hidden state in one or two parts,
// g and gy, and that of the cell state in gs; what they write may lie where what they read
// does. The order of gates is PyTorch's (aten/src/ATen/native/cuda/RNN.cu).
var (
	LSTMCell = byFormula("lstm_cell", "hidden state in forget cell out", "old xi xf xc xo hi? hf? hc? ho? bi? bf? bc? bo? di? df? dc? do?", "",
		"in = sigmoid(xi + hi + bi + di)",
		"forget = sigmoid(xf + hf + bf + df)",
		"cell = tanh(xc + hc + bc + dc)",
		"out = sigmoid(xo + ho + bo + do)",
		"state = forget*old + in*cell",
		"hidden = out*tanh(state)")
	// LSTMCellGrad gives the gradients of the gates, which those of both products and biases
	// are, and of the old state; inner is the hidden state once more.
	LSTMCellGrad = byFormula("lstm_cell_grad", "gxi gxf gxc gxo gold inner?", "state old in forget cell out g? gy? gs?", "",
		"t = tanh(state)",
		"all = g + gy",
		"s = gs + all*out*(1 - t*t)",
		"gxi = s*cell*in*(1 - in)",
		"gxf = s*old*forget*(1 - forget)",
		"gxc = s*in*(1 - cell*cell)",
		"gxo = all*t*out*(1 - out)",
		"gold = s*forget",
		"when inner: inner = out*t")
	// GRUCell: part is the product of the hidden state that the reset gate multiplies.
	GRUCell = byFormula("gru_cell", "hidden reset update fresh part", "old xr xz xn hr hz hn br? bz? bn? dr? dz? dn?", "",
		"reset = sigmoid(xr + hr + br + dr)",
		"update = sigmoid(xz + hz + bz + dz)",
		"part = hn + dn",
		"fresh = tanh(xn + bn + reset*part)",
		"hidden = fresh + update*(old - fresh)")
	GRUCellGrad = byFormula("gru_cell_grad", "gxr gxz gxn ghr ghz ghn gold", "old reset update fresh part g? gy?", "",
		"all = g + gy",
		"gxn = all*(1 - update)*(1 - fresh*fresh)",
		"gxr = gxn*part*reset*(1 - reset)",
		"gxz = all*(old - fresh)*update*(1 - update)",
		"ghr = gxr",
		"ghz = gxz",
		"ghn = gxn*reset",
		"gold = all*update")
	// Those of a plain RNN have both products in x, and keep the hidden state.
	TanhCell     = byFormula("tanh_cell", "hidden kept", "x d?", "", "hidden = tanh(x + d)", "kept = hidden")
	TanhCellGrad = byFormula("tanh_cell_grad", "gx", "kept g gy?", "", "gx = (g + gy)*(1 - kept*kept)")
	ReluCell     = byFormula("relu_cell", "hidden kept", "x d?", "", "hidden = max(x + d, 0)", "kept = hidden")
	ReluCellGrad = byFormula("relu_cell_grad", "gx", "kept g gy?", "", "gx = choose(kept, g + gy, 0, 0)")
)
