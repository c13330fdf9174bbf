package layers

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
)

// plainCells are the cells of a plain RNN by their nonlinearity.
var plainCells = map[string]*op.Op{"tanh": aten.RNNTanhCell, "relu": aten.RNNReluCell}

// singleCell defines a cell without a cell state.
func singleCell(sig string, gates int64, row func(b *module.Builder) *op.Op) *module.Layer {
	return define(module.Layer{Sig: sig, Inputs: "input hx?", Is: nn.Layer{Init: nn.Recurrent(gates)}, Alone: cellInput, Build: func(b *module.Builder) {
		weights := cell(b, gates)
		h := b.In(1)
		if h.Absent() {
			h = b.Let("hx", zeros(b))
		}
		state(b, h)
		ret := b.Let("ret", b.Do(row(b), nil, append([]value.Value{b.In(0), h}, weights...)...))
		b.Finish(ret)
	}})
}

var (
	GRUCell = singleCell("nn.GRUCell(input_size: infer int, hidden_size: int, bias: bool = True)", 3, func(*module.Builder) *op.Op { return aten.GRUCell })
	RNNCell = singleCell("nn.RNNCell(input_size: infer int, hidden_size: int, bias: bool = True, nonlinearity: str(tanh|relu) = 'tanh')", 1,
		func(b *module.Builder) *op.Op { return plainCells[b.Str("nonlinearity")] })
)

var LSTMCell = define(module.Layer{
	Sig:    "nn.LSTMCell(input_size: infer int, hidden_size: int, bias: bool = True)",
	Inputs: "input hx?", Tuples: true,
	Is: nn.Layer{Init: nn.Recurrent(4)}, Alone: cellInput,
	Build: func(b *module.Builder) {
		weights := cell(b, 4)
		hx := b.In(1)
		var h, c value.Value
		if hx.Absent() {
			h = b.Let("zeros", zeros(b))
			c = h
		} else {
			h, c = hiddenAndCell(b, hx)
		}
		state(b, h)
		state(b, c)
		ret := b.LetAll([]string{"h", "c"}, b.Call(aten.LSTMCell, nil, append([]value.Value{b.In(0), h, c}, weights...)...))
		b.Finish(ret...)
	},
})

// cellInput is what a cell is made for that nothing calls.
func cellInput(b *module.Builder) []*op.Tensor { return b.Alone([]int64{1, b.Size("input_size")}) }

// cell registers the parameters of a recurrent cell with so many gates.
func cell(b *module.Builder, gates int64) []value.Value {
	x := b.Tensor(2)
	if x.Rank() != 2 {
		b.Fail("", "the input needs two dimensions, not shape %v", x.Size)
	}
	in, hidden := b.Infer("input_size", x.Dim(1)), b.Positive("hidden_size")
	if hidden > 1<<40 {
		b.Fail("hidden_size", "hidden_size %d is too large", hidden)
	}
	out := []value.Value{b.Param("weight_ih", gates*hidden, in), b.Param("weight_hh", gates*hidden, hidden), {}, {}}
	if b.Bool("bias") {
		out[2], out[3] = b.Param("bias_ih", gates*hidden), b.Param("bias_hh", gates*hidden)
	}
	return out
}

// zeros is the state of a cell that is given none.
func zeros(b *module.Builder) value.Value {
	return b.Do(aten.CellZeros, &aten.CellZerosArgs{Hidden: b.Int("hidden_size")}, b.In(0))
}

// state checks the shape of a state.
func state(b *module.Builder, v value.Value) {
	x, h := b.Tensor(2), v.Meta.Tensor
	if h == nil || h.Rank() != 2 || h.Dim(0) != x.Dim(0) || h.Dim(1) != b.Int("hidden_size") {
		b.Fail("", "a state of %s does not fit an input of shape %v and hidden_size %d", v.Meta.Describe(), x.Size, b.Int("hidden_size"))
	}
}
