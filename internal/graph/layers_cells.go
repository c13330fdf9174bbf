package graph

import (
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

// plainCells are the cells of a plain RNN by their nonlinearity.
var plainCells = map[string]*op.Op{"tanh": op.RNNTanhCell, "relu": op.RNNReluCell}

// singleCell defines a cell without a cell state.
func singleCell(sig string, gates int64, row func(b *builder) *op.Op) *Layer {
	return layer(Layer{Sig: sig, Inputs: "input hx?", Is: nn.Layer{Init: nn.Recurrent(gates)}, Build: func(b *builder) {
		weights := b.cell(gates)
		h := b.in(1)
		if h.isNone() {
			h = b.let("hx", b.zeros())
		}
		b.state(h)
		ret := b.let("ret", b.do(row(b), nil, append([]val{b.in(0), h}, weights...)...))
		b.finish([]val{ret})
	}})
}

var (
	GRUCell = singleCell("nn.GRUCell(input_size: infer int, hidden_size: int, bias: bool = True)", 3, func(*builder) *op.Op { return op.GRUCell })
	RNNCell = singleCell("nn.RNNCell(input_size: infer int, hidden_size: int, bias: bool = True, nonlinearity: str(tanh|relu) = 'tanh')", 1,
		func(b *builder) *op.Op { return plainCells[b.str("nonlinearity")] })
)

var LSTMCell = layer(Layer{
	Sig:    "nn.LSTMCell(input_size: infer int, hidden_size: int, bias: bool = True)",
	Inputs: "input hx?", Tuples: true,
	Is: nn.Layer{Init: nn.Recurrent(4)},
	Build: func(b *builder) {
		weights := b.cell(4)
		hx := b.in(1)
		var h, c val
		if hx.isNone() {
			h = b.let("zeros", b.zeros())
			c = h
		} else {
			h, c = b.hiddenAndCell(hx)
		}
		b.state(h)
		b.state(c)
		ret := b.letAll([]string{"h", "c"}, b.call(op.LSTMCell, nil, append([]val{b.in(0), h, c}, weights...)...))
		b.finish(ret)
	},
})

// cell registers the parameters of a recurrent cell with so many gates.
func (b *builder) cell(gates int64) []val {
	x := b.x(2)
	if x.Rank() != 2 {
		b.fail("", "the input needs two dimensions, not shape %v", x.Size)
	}
	in, hidden := b.infer("input_size", x.Dim(1)), b.positive("hidden_size")
	if hidden > 1<<40 {
		b.fail("hidden_size", "hidden_size %d is too large", hidden)
	}
	out := []val{b.param("weight_ih", gates*hidden, in), b.param("weight_hh", gates*hidden, hidden), {}, {}}
	if b.bool("bias") {
		out[2], out[3] = b.param("bias_ih", gates*hidden), b.param("bias_hh", gates*hidden)
	}
	return out
}

// zeros is the state of a cell that is given none.
func (b *builder) zeros() val {
	return b.do(op.CellZeros, &op.CellZerosArgs{Hidden: b.int("hidden_size")}, b.in(0))
}

// state checks the shape of a state.
func (b *builder) state(v val) {
	x, h := b.x(2), v.m.t
	if h == nil || h.Rank() != 2 || h.Dim(0) != x.Dim(0) || h.Dim(1) != b.int("hidden_size") {
		b.fail("", "a state of %s does not fit an input of shape %v and hidden_size %d", v.m.describe(), x.Size, b.int("hidden_size"))
	}
}
