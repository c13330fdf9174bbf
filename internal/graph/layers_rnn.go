package graph

import (
	"fmt"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// maxRNNLayers bounds num_layers.
const maxRNNLayers = 1024

// plainRNNs are the plain RNNs by their nonlinearity.
var plainRNNs = map[string]*op.Op{"tanh": op.RNNTanh, "relu": op.RNNRelu}

// The arguments that recurrent layers share.
const (
	rnnSizes = "input_size: infer int, hidden_size: int, num_layers: int = 1, "
	rnnFlags = "bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False"
)

// recurrent defines a recurrent layer with so many gates.
func recurrent(sig string, gates int64, row func(b *builder) *op.Op) *Layer {
	return layer(Layer{Sig: sig, Inputs: "input hx?", Tuples: true, Is: nn.Layer{Init: nn.Recurrent(gates)}, Build: func(b *builder) { b.recurrent(gates, row(b)) }})
}

var (
	LSTM = recurrent("nn.LSTM("+rnnSizes+rnnFlags+", proj_size: int = 0)", 4, func(*builder) *op.Op { return op.LSTM })
	GRU  = recurrent("nn.GRU("+rnnSizes+rnnFlags+")", 3, func(*builder) *op.Op { return op.GRU })
	RNN  = recurrent("nn.RNN("+rnnSizes+"nonlinearity: str(tanh|relu) = 'tanh', "+rnnFlags+")", 1, func(b *builder) *op.Op { return plainRNNs[b.str("nonlinearity")] })
)

// recurrent is forward of nn.LSTM, nn.GRU and nn.RNN
// (torch/nn/modules/rnn.py). It returns the output and the last state, which of
// an LSTM is a tuple of hidden and cell state.
func (b *builder) recurrent(gates int64, row *op.Op) {
	if r := b.x(0).Rank(); r != 3 {
		b.fail("", "expected a batch of sequences, (batch, steps, width) with batch_first: true or else (steps, batch, width), not shape %v", b.x(0).Size)
	}
	a := b.rnnArgs(gates)
	a.ReLU = row == op.RNNRelu
	weights := b.rnnWeights(a)
	h, c := b.rnnState(a)
	outs := b.letAll([]string{"output", "h_n", "c_n"}[:1+b.states(a)], b.call(row, a, append([]val{b.in(0), h, c}, weights...)...))
	if !a.LSTM() {
		b.finish(outs)
		return
	}
	hidden := &program.Expr{Kind: program.ListLit, Args: []*program.Expr{outs[1].e, outs[2].e}}
	b.finish([]val{outs[0], {hidden, meta{tuple: []meta{outs[1].m, outs[2].m}}}})
}

// states is the number of tensors that a state is made of.
func (b *builder) states(a *op.RNNArgs) int {
	if a.LSTM() {
		return 2
	}
	return 1
}

// rnnArgs checks the constructor's arguments as RNNBase does.
func (b *builder) rnnArgs(gates int64) *op.RNNArgs {
	a := &op.RNNArgs{
		Gates: gates, Hidden: b.positive("hidden_size"), Proj: b.int("proj_size"), Layers: b.positive("num_layers"), Bias: b.bool("bias"),
		BatchFirst: b.bool("batch_first"), Dropout: b.float("dropout"), Bidirectional: b.bool("bidirectional"),
	}
	switch {
	case a.Hidden > 1<<40:
		b.fail("hidden_size", "hidden_size %d is too large", a.Hidden)
	case a.Layers > maxRNNLayers:
		b.fail("num_layers", "num_layers must be at most %d, not %d", maxRNNLayers, a.Layers)
	case a.Dropout < 0 || a.Dropout > 1:
		b.fail("dropout", "dropout must be between 0 and 1, not %v", a.Dropout)
	case a.Proj < 0 || a.Proj >= a.Hidden:
		b.fail("proj_size", "proj_size must be at least 0 and less than hidden_size, which is %d, not %d", a.Hidden, a.Proj)
	}
	return a
}

// rnnWeights registers the parameters, which on the device lie in one buffer.
func (b *builder) rnnWeights(a *op.RNNArgs) []val {
	first := b.infer("input_size", b.x(3).Dim(-1))
	var out []val
	for l := range a.Layers {
		in := a.InputSize(l, first)
		for d := range a.Directions() {
			suffix := fmt.Sprintf("_l%d%s", l, []string{"", "_reverse"}[d])
			out = append(out, b.param("weight_ih"+suffix, a.Gates*a.Hidden, in), b.param("weight_hh"+suffix, a.Gates*a.Hidden, a.Out()))
			if a.Bias {
				out = append(out, b.param("bias_ih"+suffix, a.Gates*a.Hidden), b.param("bias_hh"+suffix, a.Gates*a.Hidden))
			}
			if a.Proj > 0 {
				out = append(out, b.param("weight_hr"+suffix, a.Proj, a.Hidden))
			}
		}
	}
	b.class.Flat = a.FlatWeights(first)
	return out
}

// rnnState is the state that the layer starts from: hx, or zeros. Without a cell
// state, c is none.
func (b *builder) rnnState(a *op.RNNArgs) (h, c val) {
	hx := b.in(1)
	if hx.isNone() {
		zeros := func(name string, width int64) val {
			args := &op.RNNZerosArgs{Cells: a.Layers * a.Directions(), Width: width, BatchFirst: a.BatchFirst}
			return b.let(name, b.do(op.RNNZeros, args, b.in(0)))
		}
		if h = zeros("h_zeros", a.Out()); a.LSTM() {
			c = zeros("c_zeros", a.Hidden)
		}
		return h, c
	}
	if !a.LSTM() {
		if hx.m.t == nil {
			b.fail("", "hx must be the hidden state, not %s", hx.m.describe())
		}
		return hx, val{}
	}
	return b.hiddenAndCell(hx)
}

// hiddenAndCell takes the state of an LSTM apart.
func (b *builder) hiddenAndCell(hx val) (h, c val) {
	if len(hx.m.tuple) != 2 || hx.m.tuple[0].t == nil || hx.m.tuple[1].t == nil {
		b.fail("", "hx must be a list of hidden state and cell state, not %s", hx.m.describe())
	}
	item := func(i int) val {
		return val{&program.Expr{Kind: program.Item, Slot: hx.e.Slot, Index: i}, hx.m.tuple[i]}
	}
	return item(0), item(1)
}
