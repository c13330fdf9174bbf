package main

import (
	"fmt"
	"strings"
)

// rnn is a recurrent layer that a spec may hold: its class, its arguments
// without those of its size, and the shape of its states.
type rnn struct {
	kind, args     string
	hidden, out    int64 // widths of cell and hidden state
	cells          int64 // layers times directions
	dirs           int64
	lstm, batchNot bool // batchNot: the batch is taken for the steps
}

// drawRNN draws a recurrent layer.
func (g *generator) drawRNN() rnn {
	r := rnn{kind: g.pick("LSTM", "LSTM", "GRU", "GRU", "RNN"), hidden: g.size(8, 90), dirs: 1}
	r.lstm, r.out = r.kind == "LSTM", r.hidden
	args := []string{fmt.Sprintf("hidden_size: %d", r.hidden)}
	layers := int64(1)
	if g.chance(0.5) {
		layers += 1 + g.r.Int64N(2)
		args = append(args, fmt.Sprintf("num_layers: %d", layers))
	}
	if g.chance(0.3) {
		r.dirs = 2
		args = append(args, "bidirectional: true")
	}
	if r.cells = layers * r.dirs; layers > 1 && g.chance(0.5) {
		args = append(args, "dropout: 0.2")
	}
	if g.chance(0.2) {
		args = append(args, "bias: false")
	}
	if r.lstm && g.chance(0.2) {
		r.out = g.size(2, r.hidden-1)
		args = append(args, fmt.Sprintf("proj_size: %d", r.out))
	}
	if r.kind == "RNN" && g.chance(0.5) {
		args = append(args, "nonlinearity: relu")
	}
	if r.batchNot = g.chance(0.2); !r.batchNot {
		args = append(args, "batch_first: true")
	}
	r.args = strings.Join(args, ", ")
	return r
}

// recurrent writes a recurrent layer on (batch, length, width), and what people
// do with its results.
func (b *body) recurrent() bool {
	g, s, x := b.g, b.cur.shape, b.cur.name
	if !b.module || s[1] > 70 || s[0] > 70 {
		return false
	}
	r := g.drawRNN()
	inputs, state := x, ""
	if g.chance(0.3) && r.cells == 1 && !r.batchNot {
		inputs = fmt.Sprintf("[%s, %s]", x, b.firstState(r, x))
	}
	y := []int64{s[0], s[1], r.dirs * r.out}
	if r.batchNot || g.chance(0.35) { // the output alone
		b.emit("{%s: {%s}, inputs: %s, pick: 0}", r.kind, r.args, inputs)
		b.result("", y, true)
		b.last(r)
		return true
	}
	out, h, c := b.fresh(), b.fresh(), b.fresh()
	switch {
	case g.chance(0.3): // the state stays together
		state = h
		b.emit("{%s: {%s}, inputs: %s, name: [%s, %s]}", r.kind, r.args, inputs, out, h)
		if r.lstm {
			h = h + "[0]"
		}
	case r.lstm:
		state = fmt.Sprintf("[%s, %s]", h, c)
		b.emit("{%s: {%s}, inputs: %s, name: [%s, [%s, %s]]}", r.kind, r.args, inputs, out, h, c)
	default:
		state = h
		b.emit("{%s: {%s}, inputs: %s, name: [%s, %s]}", r.kind, r.args, inputs, out, h)
	}
	b.named = append(b.named, value{out, y, true})
	switch g.r.IntN(3) {
	case 0: // the last layer's state
		b.emit("{getitem: \"-1\", inputs: \"%s\"}", h)
		b.result("", []int64{s[0], r.out}, true)
	case 1: // a second layer goes on from the state
		b.emit("{%s: {%s}, inputs: [%s, %s], pick: 0}", r.kind, r.args, x, state)
		b.result("", y, true)
		b.last(r)
	case 2:
		b.emit("{%s: , inputs: %s}", g.pick("tanh", "clone", "relu"), out)
		b.result("", y, true)
		b.last(r)
	}
	return true
}

// firstState writes the state of a single cell as it comes from another layer,
// so that it wants a gradient.
func (b *body) firstState(r rnn, x string) string {
	v := func(width int64) string {
		n := b.fresh()
		b.emit("{Linear: %d, inputs: [{mean: 1, inputs: %s}], name: %s}", width, x, n)
		return fmt.Sprintf("{unsqueeze: 0, inputs: %s}", n)
	}
	if !r.lstm {
		return v(r.out)
	}
	return fmt.Sprintf("[%s, %s]", v(r.out), v(r.hidden))
}

// last sometimes goes on with the last step alone.
func (b *body) last(r rnn) {
	s := b.cur.shape
	if b.g.chance(0.4) {
		b.step("getitem: ':, -1'", []int64{s[0], s[2]}, "", true)
	}
}
