package layers

import (
	"fmt"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// maxRNNLayers bounds num_layers.
const maxRNNLayers = 1024

// plainRNNs are the plain RNNs by their nonlinearity.
var plainRNNs = map[string]*op.Op{"tanh": aten.RNNTanh, "relu": aten.RNNRelu}

// The arguments that recurrent layers share.
const (
	rnnSizes = "input_size: infer int, hidden_size: int, num_layers: int = 1, "
	rnnFlags = "bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False"
)

// steps makes a layer that nothing calls for sequences of the width that an
// argument says, as many as it has inputs.
func steps(widths ...string) func(b *module.Builder) []*op.Tensor {
	return func(b *module.Builder) []*op.Tensor {
		sizes := make([][]int64, len(widths))
		for i, w := range widths {
			sizes[i] = []int64{1, 1, b.Size(w)}
		}
		return b.Alone(sizes...)
	}
}

// recurrent defines a recurrent layer with so many gates.
func recurrent(sig string, gates int64, row func(b *module.Builder) *op.Op) *module.Layer {
	return define(module.Layer{Sig: sig, Inputs: "input hx?", Tuples: true, Is: nn.Layer{Init: nn.Recurrent(gates)}, Alone: steps("input_size"), Build: func(b *module.Builder) { recurrentForward(b, gates, row(b)) }})
}

var (
	LSTM = recurrent("nn.LSTM("+rnnSizes+rnnFlags+", proj_size: int = 0)", 4, func(*module.Builder) *op.Op { return aten.LSTM })
	GRU  = recurrent("nn.GRU("+rnnSizes+rnnFlags+")", 3, func(*module.Builder) *op.Op { return aten.GRU })
	RNN  = recurrent("nn.RNN("+rnnSizes+"nonlinearity: str(tanh|relu) = 'tanh', "+rnnFlags+")", 1, func(b *module.Builder) *op.Op { return plainRNNs[b.Str("nonlinearity")] })
)

// recurrentForward is forward of nn.LSTM, nn.GRU and nn.RNN
// (torch/nn/modules/rnn.py). It returns the output and the last state, which of
// an LSTM is a tuple of hidden and cell state.
func recurrentForward(b *module.Builder, gates int64, row *op.Op) {
	if r := b.Tensor(0).Rank(); r != 3 {
		b.Fail("", "expected a batch of sequences, (batch, steps, width) with batch_first: true or else (steps, batch, width), not shape %v", b.Tensor(0).Size)
	}
	a := rnnArgs(b, gates)
	a.ReLU = row == aten.RNNRelu
	weights := rnnWeights(b, a)
	h, c := rnnState(b, a)
	outs := b.LetAll([]string{"output", "h_n", "c_n"}[:1+states(a)], b.Call(row, a, append([]value.Value{b.In(0), h, c}, weights...)...))
	if !a.LSTM() {
		b.Finish(outs...)
		return
	}
	hidden := &program.Expr{Kind: program.ListLit, Args: []*program.Expr{outs[1].Expr, outs[2].Expr}}
	b.Finish(outs[0], value.Value{Expr: hidden, Meta: value.Meta{Tuple: []value.Meta{outs[1].Meta, outs[2].Meta}}})
}

// states is the number of tensors that a state is made of.
func states(a *aten.RNNArgs) int {
	if a.LSTM() {
		return 2
	}
	return 1
}

// rnnArgs checks the constructor's arguments as RNNBase does.
func rnnArgs(b *module.Builder, gates int64) *aten.RNNArgs {
	a := &aten.RNNArgs{
		Gates: gates, Hidden: b.Positive("hidden_size"), Layers: b.Positive("num_layers"), Bias: b.Bool("bias"),
		BatchFirst: b.Bool("batch_first"), Dropout: b.Float("dropout"), Bidirectional: b.Bool("bidirectional"),
	}
	if b.Takes("proj_size") {
		a.Proj = b.Int("proj_size")
	}
	switch {
	case a.Hidden > 1<<40:
		b.Fail("hidden_size", "hidden_size %d is too large", a.Hidden)
	case a.Layers > maxRNNLayers:
		b.Fail("num_layers", "num_layers must be at most %d, not %d", maxRNNLayers, a.Layers)
	case a.Dropout < 0 || a.Dropout > 1:
		b.Fail("dropout", "dropout must be between 0 and 1, not %v", a.Dropout)
	case a.Proj < 0 || a.Proj >= a.Hidden:
		b.Fail("proj_size", "proj_size must be at least 0 and less than hidden_size, which is %d, not %d", a.Hidden, a.Proj)
	}
	return a
}

// rnnWeights registers the parameters, which on the device lie in one buffer.
func rnnWeights(b *module.Builder, a *aten.RNNArgs) []value.Value {
	first := b.Infer("input_size", b.Tensor(3).Dim(-1))
	var out []value.Value
	for l := range a.Layers {
		in := a.InputSize(l, first)
		for d := range a.Directions() {
			suffix := fmt.Sprintf("_l%d%s", l, []string{"", "_reverse"}[d])
			out = append(out, b.Param("weight_ih"+suffix, a.Gates*a.Hidden, in), b.Param("weight_hh"+suffix, a.Gates*a.Hidden, a.Out()))
			if a.Bias {
				out = append(out, b.Param("bias_ih"+suffix, a.Gates*a.Hidden), b.Param("bias_hh"+suffix, a.Gates*a.Hidden))
			}
			if a.Proj > 0 {
				out = append(out, b.Param("weight_hr"+suffix, a.Proj, a.Hidden))
			}
		}
	}
	b.Class.Flat = a.FlatWeights(first)
	return out
}

// rnnState is the state that the layer starts from: hx, or zeros. Without a cell
// state, c is none.
func rnnState(b *module.Builder, a *aten.RNNArgs) (h, c value.Value) {
	hx := b.In(1)
	if hx.Absent() {
		zeros := func(name string, width int64) value.Value {
			args := &aten.RNNZerosArgs{Cells: a.Layers * a.Directions(), Width: width, BatchFirst: a.BatchFirst}
			return b.Let(name, b.Do(aten.RNNZeros, args, b.In(0)))
		}
		if h = zeros("h_zeros", a.Out()); a.LSTM() {
			c = zeros("c_zeros", a.Hidden)
		}
		return h, c
	}
	if !a.LSTM() {
		if hx.Meta.Tensor == nil {
			b.Fail("", "hx must be the hidden state, not %s", hx.Meta.Describe())
		}
		return hx, value.Value{}
	}
	return hiddenAndCell(b, hx)
}

// hiddenAndCell takes the state of an LSTM apart.
func hiddenAndCell(b *module.Builder, hx value.Value) (h, c value.Value) {
	if len(hx.Meta.Tuple) != 2 || hx.Meta.Tuple[0].Tensor == nil || hx.Meta.Tuple[1].Tensor == nil {
		b.Fail("", "hx must be a list of hidden state and cell state, not %s", hx.Meta.Describe())
	}
	item := func(i int) value.Value {
		return value.Value{Expr: &program.Expr{Kind: program.Item, Slot: hx.Expr.Slot, Index: i}, Meta: hx.Meta.Tuple[i]}
	}
	return item(0), item(1)
}
